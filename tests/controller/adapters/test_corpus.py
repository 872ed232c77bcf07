import ast
import math
import os
import subprocess
import sys
import sysconfig
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from controller.adapters import corpus
from controller.adapters.corpus import (
    BUILT_IN,
    Context,
    CorpusError,
    SourceFiles,
    SourceSizes,
    bigram_entropies,
    check_source,
    digest_source,
    write_source,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").write_bytes(b"secret")
    for number in range(20):
        place = folder / "deep" if number % 2 else folder
        (place / f"chapter-{number:02}.txt").write_bytes(f"chapter {number}\n".encode() * 10)
    (folder / "empty.txt").touch()
    return folder


def refusal(options: dict[str, object], base: Path) -> CorpusError:
    """Return the error of both questions, having checked that nothing was written."""
    context = Context("spec.data.sources.mine", "my.yaml", base)
    out = base / "out"
    with pytest.raises(CorpusError) as checked:
        check_source("files", options, context)
    with pytest.raises(CorpusError) as written:
        write_source("files", options, out, context)
    assert str(checked.value) == str(written.value)
    assert str(checked.value).endswith("Edit my.yaml, then: ctl launch my.yaml --dry-run")
    assert not out.exists()
    return checked.value


# --- built-in text ---


@pytest.fixture(scope="module")
def built_in(tmp_path_factory: pytest.TempPathFactory) -> dict[str, SourceFiles]:
    folder = tmp_path_factory.mktemp("built-in")
    return {kind: write_source(kind, {}, folder / kind) for kind in BUILT_IN}


@pytest.mark.parametrize("kind", BUILT_IN)
def test_built_in_text_is_large_enough_and_the_same_twice(kind, built_in, tmp_path):
    first, second = built_in[kind], write_source(kind, {}, tmp_path)
    promised = check_source(kind, {})
    assert first.sizes.heldout_bytes >= promised.heldout_bytes >= 200_000
    assert corpus.TRAIN_CAP_BYTES * 1.1 > first.sizes.train_bytes >= promised.train_bytes
    assert first.train_sha256 == second.train_sha256 == digest_source(first.train)
    assert first.heldout_sha256 == second.heldout_sha256 == digest_source(second.heldout)
    assert first.sizes.train_bytes == first.train.stat().st_size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heldout.txt", "train.txt"]


def test_built_in_text_of_another_process_is_the_same(built_in, tmp_path):
    script = (
        "import sys; from pathlib import Path; from controller.adapters.corpus import write_source;"
        "write_source('python-stdlib', {}, Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    command = [sys.executable, "-c", script, str(tmp_path)]
    subprocess.run(command, check=True, env=environment, cwd=ROOT, timeout=60)
    assert digest_source(tmp_path / "train.txt") == built_in["python-stdlib"].train_sha256
    assert digest_source(tmp_path / "heldout.txt") == built_in["python-stdlib"].heldout_sha256


def test_built_in_text_held_out_module_is_in_no_training_text(built_in):
    training = b"".join(source.train.read_bytes() for source in built_in.values())
    apart = [path for name, path in corpus._library_files() if corpus._is_heldout(name)]
    assert len(apart) > 20
    for path in apart:
        body = path.read_bytes().strip()
        if len(body) > 2000:
            assert body[500:2000] not in training, path
        docstring = (ast.get_docstring(ast.parse(body)) or "").encode()
        if len(docstring) > 200:
            assert docstring not in training, path


def test_built_in_docs_hold_topics_and_docstrings(built_in):
    train = built_in["python-docs"].train.read_text()
    assert sum(train.count(name) for name in ("\njson.", "\nasyncio.", "\nemail.")) > 20
    assert sum(text in train for text in topics.values()) > len(topics) / 2


def test_built_in_text_too_small_installation_refuses(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "tiny.py").write_text("x = 1\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "lib"))
    with pytest.raises(CorpusError, match="use kind: files") as caught:
        write_source("python-stdlib", {}, tmp_path / "out")
    assert caught.value.rule == "data.built-in"
    (tmp_path / "lib" / "tiny.py").unlink()
    with pytest.raises(CorpusError, match="no standard library in source form"):
        check_source("python-stdlib", {})


@pytest.mark.parametrize(
    ("kind", "options", "rule"),
    [("python-doc", {}, "data.kind"), ("python-docs", {"paths": ["x"]}, "data.option")],
)
def test_source_of_unknown_kind_or_option_refuses(kind, options, rule):
    with pytest.raises(CorpusError) as caught:
        check_source(kind, options)
    assert caught.value.rule == rule


def test_docstrings_of_unparsable_source_are_none():
    assert corpus._collect_docstrings("m.py", b"def (") == ""
    assert corpus._collect_docstrings("m.py", b"\0") == ""
    nested = b'"""Top."""\nclass A:\n    """Of A."""\n    def f(self):\n        """Of f."""\n'
    found = corpus._collect_docstrings("p/__init__.py", nested)
    assert found == "p\n\nTop.\n\n\np.A\n\nOf A.\n\n\np.A.f\n\nOf f.\n\n\n"


# --- the user's files ---


def test_files_of_a_folder_are_split_by_whole_file(text, tmp_path):
    options = {"paths": ["text"], "heldOutPercent": 20}
    context = Context(base=tmp_path)
    source = write_source("files", options, tmp_path / "out", context)
    assert check_source("files", options, context) == source.sizes
    chapters = [b"chapter %d\n" % number * 10 for number in range(20)]
    train, heldout = source.train.read_bytes(), source.heldout.read_bytes()
    assert len(train) + len(heldout) == sum(map(len, chapters))
    assert 0 < len(heldout) <= 0.2 * (len(train) + len(heldout))
    assert all((chapter in train) != (chapter in heldout) for chapter in chapters)
    assert b"secret" not in train + heldout


def test_files_with_held_out_paths_keep_them_out_of_training(text, tmp_path):
    options = {"paths": ["text/**/*.txt", "text"], "heldOut": ["text/chapter-00.txt"]}
    source = write_source("files", options, tmp_path / "out", Context(base=tmp_path))
    assert source.heldout.read_bytes() == b"chapter 0\n" * 10
    assert b"chapter 0\n" not in source.train.read_bytes()
    assert source.train.read_bytes().count(b"chapter 19\n") == 10


def test_files_absolute_glob_and_bytes_that_are_no_text_work(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(range(256)) * 10)
    source = write_source("files", {"paths": [str(tmp_path / "*.bin")]}, tmp_path / "out")
    assert source.sizes == SourceSizes(2432, 128)
    joined = source.train.read_bytes() + source.heldout.read_bytes()
    assert joined == bytes(range(256)) * 10


def test_files_longer_than_a_chunk_are_copied_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "CHUNK_BYTES", 7)
    (tmp_path / "a.txt").write_bytes(b"0123456789" * 10)
    source = write_source(
        "files",
        {"paths": ["a.txt"], "heldOutPercent": 25},
        tmp_path / "out",
        Context(base=tmp_path),
    )
    assert source.train.read_bytes() == b"0123456789" * 7 + b"01234"
    assert source.heldout.read_bytes() == b"56789" + b"0123456789" * 2


@pytest.mark.parametrize(
    ("options", "rule", "field"),
    [
        ({}, "data.paths", "mine.paths"),
        ({"paths": "text"}, "data.paths", "mine.paths"),
        ({"paths": []}, "data.empty", "mine.paths"),
        ({"paths": [7]}, "data.paths", "mine.paths"),
        ({"paths": [""]}, "data.paths", "mine.paths"),
        ({"paths": ["text", "nowhere/*.txt"]}, "data.missing", "mine.paths.1"),
        ({"paths": ["text/empty.txt"]}, "data.empty", "mine.paths"),
        ({"paths": ["text"], "heldOut": ["nowhere.txt"]}, "data.missing", "mine.heldOut.0"),
        ({"paths": ["text"], "heldOut": ["text/empty.txt"]}, "data.empty", "mine.heldOut"),
        ({"paths": ["text"], "heldOut": ["text"]}, "data.empty", "mine.paths"),
        ({"paths": ["text"], "heldOutPercent": 0}, "data.held-out", "mine.heldOutPercent"),
        ({"paths": ["text"], "heldOutPercent": 51}, "data.held-out", "mine.heldOutPercent"),
        ({"paths": ["text"], "heldOutPercent": True}, "data.held-out", "mine.heldOutPercent"),
        ({"paths": ["text"], "heldout": ["x"]}, "data.option", "sources.mine"),
    ],
)
def test_files_that_cannot_be_used_are_refused_and_nothing_is_written(
    text, tmp_path, options, rule, field
):
    error = refusal(options, tmp_path)
    assert error.rule == rule
    assert error.field.endswith(field)


def test_files_that_cannot_be_read_are_refused_by_name(text, tmp_path, monkeypatch):
    locked = text / "chapter-04.txt"
    really_open = Path.open

    def open_unless_locked(path: Path, *arguments: object, **options: object):
        if path == locked:
            raise PermissionError(13, os.strerror(13))
        return really_open(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", open_unless_locked)  # root may read everything
    error = refusal({"paths": ["text"]}, tmp_path)
    assert error.rule == "data.unreadable"
    assert "chapter-04.txt cannot be read (Permission denied)" in str(error)


def test_files_interrupted_write_leaves_the_earlier_pair(text, tmp_path, monkeypatch):
    options, context = {"paths": ["text"]}, Context(base=tmp_path)
    first = write_source("files", options, tmp_path / "out", context)
    (text / "chapter-00.txt").write_bytes(b"another text")

    def fail(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(corpus.os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_source("files", options, tmp_path / "out", context)
    assert digest_source(first.train) == first.train_sha256


# --- the bigram bar ---


def naive_entropies(train: bytes, heldout: bytes, strength: float) -> tuple[float, float]:
    unigram = bigram = 0.0
    for first, second in pairwise(heldout):
        p = (train.count(second) + 1) / (len(train) + 256)
        joint = sum(pair == (first, second) for pair in pairwise(train))
        alone = train[:-1].count(first)
        unigram -= math.log(p)
        bigram -= math.log((joint + strength * p) / (alone + strength))
    return unigram / (len(heldout) - 1), bigram / (len(heldout) - 1)


def test_bigram_entropies_equal_counting_by_hand(monkeypatch):
    train, heldout = b"the cat sat on the mat, the end"[:30], b"that hat"
    monkeypatch.setattr(corpus, "PSEUDO_COUNTS", (3.0,))
    assert bigram_entropies(train, heldout) == pytest.approx(naive_entropies(train, heldout, 3.0))


def test_bigram_entropies_take_the_strength_that_suits_best():
    train, heldout = b"abcabcabd" * 30, b"abcabdxbc" * 5
    bars = [naive_entropies(train, heldout, k)[1] for k in corpus.PSEUDO_COUNTS]
    assert bigram_entropies(train, heldout)[1] == pytest.approx(min(bars))


def test_bigram_entropies_of_a_cycle_are_log_two_and_nearly_zero():
    unigram, bigram = bigram_entropies(b"ab" * 100_000, b"ab" * 100)
    assert unigram == pytest.approx(math.log(2), abs=2e-3)
    assert bigram == pytest.approx(0, abs=1e-4)


def test_bigram_entropies_without_a_pair_refuse():
    with pytest.raises(ValueError, match="no pair"):
        bigram_entropies(b"abc", b"a")
