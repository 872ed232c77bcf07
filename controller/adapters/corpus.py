"""Writes each source's text into the run: made from the Python installation, or the user's own.

Bytes are the tokens, so a source is two files, train.txt and heldout.txt. They are written once,
at launch: another Python later must not look like changed data.

Errors: CorpusError, the one class here, for text that cannot be used; OSError when the run's own
folder cannot be written.
"""

import ast
import hashlib
import os
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path
from pydoc_data import topics
from typing import cast

TRAIN_NAME = "train.txt"
HELDOUT_NAME = "heldout.txt"

TRAIN_CAP_BYTES = 4_000_000
"""Built-in training text stops after the file that reaches this, so that set-up takes seconds."""

HELDOUT_BYTES = 256_000
"""Built-in held-out text stops after the file that reaches this; at least 200 kB are promised."""

HELDOUT_SHARE = 51 / 256
"""Share of modules and topics set apart, by the first byte of their name's digest.

About a fifth: of the 2.1 MB of docstrings and topics in Python 3.11 that is 400 kB, enough for
HELDOUT_BYTES also in versions that ship fewer modules."""

BUILT_IN_FLOOR = (1_000_000, 200_000)
"""Least bytes of built-in training and held-out text; a smaller installation is refused."""

SKIPPED_FOLDERS = frozenset(
    {
        "__pycache__",
        "dist-packages",
        "encodings",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
        "turtledemo",
    }
)
"""Not the library, or tables rather than prose and code."""

CHUNK_BYTES = 1 << 20

COUNTED = "declared"
"""Kind of a source that has a number of tokens and no text."""

DEFAULT_HELDOUT_PERCENT = 5
MAX_HELDOUT_PERCENT = 50

PSEUDO_COUNTS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Strengths of the bigrams' prior that are tried; see `bigram_entropies`."""


class CorpusError(ValueError):
    """A source's text cannot be used.

    `rule` is a stable id; `field`, `value`, `bound` and `next_command` make the message.
    """

    def __init__(self, rule: str, context: "Context", value: object, bound: str) -> None:
        self.rule = rule
        self.field = context.field
        self.value = value
        self.bound = bound
        self.next_command = context.next_command
        super().__init__(
            f"{self.field} is {value!r}; {bound}. "
            f"Edit {context.run_file}, then: {self.next_command}"
        )


@dataclass(frozen=True)
class Context:
    """Where a source was declared, for messages and relative paths."""

    field: str = "spec.data.sources"
    run_file: str = "run.yaml"
    base: Path = Path()
    """Relative paths of `files` start here."""

    @property
    def next_command(self) -> str:
        return f"ctl launch {self.run_file} --dry-run"

    def member(self, name: str) -> "Context":
        return Context(f"{self.field}.{name}", self.run_file, self.base)


@dataclass(frozen=True)
class SourceSizes:
    """Bytes of text; a byte is a token."""

    train_bytes: int
    heldout_bytes: int


@dataclass(frozen=True)
class SourceFiles:
    """A source as written into the run."""

    train: Path
    heldout: Path
    sizes: SourceSizes
    train_sha256: str
    heldout_sha256: str


@dataclass(frozen=True)
class Slice:
    """Bytes `start` to `stop` of one of the user's files."""

    path: Path
    start: int
    stop: int


@dataclass(frozen=True)
class FileSplit:
    """The user's files, divided."""

    train: tuple[Slice, ...]
    heldout: tuple[Slice, ...]

    @property
    def sizes(self) -> SourceSizes:
        return SourceSizes(_total(self.train), _total(self.heldout))


def _total(slices: Iterable[Slice]) -> int:
    return sum(piece.stop - piece.start for piece in slices)


# --- the two questions a launch asks ---


def check_source(
    kind: str, options: Mapping[str, object], context: Context | None = None
) -> SourceSizes:
    """Check that a source can be written, writing nothing, and return its sizes.

    The sizes are exact for the user's files and a lower bound for built-in text.

    Raises:
        CorpusError: unknown kind or option, or text that is missing, empty or unreadable.
    """
    context = context or Context()
    if kind == "files":
        return split_files(options, context).sizes
    _require_built_in(kind, options, context)
    return SourceSizes(*BUILT_IN_FLOOR)


def write_source(
    kind: str,
    options: Mapping[str, object],
    destination: Path,
    context: Context | None = None,
) -> SourceFiles:
    """Write train.txt and heldout.txt of one source into `destination`; each appears whole.

    The same installation, or the same user's files, gives the same bytes. `options` are those
    of the run file: none for `python-stdlib` and `python-docs`; `paths` (files, folders, globs)
    with `heldOut` (the same) or `heldOutPercent` for `files`.

    Raises:
        CorpusError: as `check_source`, or the installation is too small.
        OSError: `destination` cannot be written.
    """
    context = context or Context()
    if kind == "files":
        split = split_files(options, context)
        train, heldout = _read_slices(split.train, context), _read_slices(split.heldout, context)
        return _write_pair(train, heldout, destination)
    _require_built_in(kind, options, context)
    texts = list(BUILT_IN[kind]())
    train = _take(TRAIN_CAP_BYTES, (text for name, text in texts if not _is_heldout(name)))
    heldout = _take(HELDOUT_BYTES, (text for name, text in texts if _is_heldout(name)))
    _require_floor(kind, (_length(train), _length(heldout)), context)
    return _write_pair(train, heldout, destination)


def _require_built_in(kind: str, options: Mapping[str, object], context: Context) -> None:
    if kind not in BUILT_IN:
        if kind == COUNTED:
            bound = "it is counted text, for `ctl simulate` only: it cannot be trained on"
            raise CorpusError("data.declared", context.member("kind"), kind, bound)
        known = ", ".join([*BUILT_IN, "files"])
        raise CorpusError("data.kind", context.member("kind"), kind, f"it must be one of {known}")
    if options:
        raise CorpusError("data.option", context, sorted(options), f"{kind} takes no options")
    if not _library_files():
        bound = "this Python has no standard library in source form; use kind: files"
        raise CorpusError("data.built-in", context.member("kind"), kind, bound)


def _require_floor(kind: str, sizes: tuple[int, int], context: Context) -> None:
    if sizes[0] < BUILT_IN_FLOOR[0] or sizes[1] < BUILT_IN_FLOOR[1]:
        bound = (
            f"this Python ships {sizes[0]} bytes to train on and {sizes[1]} to hold out, "
            f"fewer than {BUILT_IN_FLOOR[0]} and {BUILT_IN_FLOOR[1]}; use kind: files"
        )
        raise CorpusError("data.built-in", context.member("kind"), kind, bound)


# --- built-in text ---


def _digest_name(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _is_heldout(name: str) -> bool:
    """Say whether a module or topic is set apart.

    By name alone, so that the docstrings of a held-out module are in no source's training text.
    """
    return _digest_name(name)[0] < HELDOUT_SHARE * 256


def _library_files() -> list[tuple[str, Path]]:
    """Return (name, path) of the standard library's modules, in the order of the names' digests."""
    root = Path(sysconfig.get_path("stdlib"))
    paths: list[Path] = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        # _sysconfigdata holds the paths and compiler flags of one machine.
        names = (name for name in files if not name.startswith("_sysconfigdata"))
        paths += [Path(folder, name) for name in names if name.endswith(".py")]
    named = [(path.relative_to(root).as_posix(), path) for path in paths]
    return sorted(named, key=lambda item: _digest_name(item[0]))


def _read_code() -> Iterator[tuple[str, bytes]]:
    for name, path in _library_files():
        yield name, path.read_bytes().rstrip() + b"\n\n\n"


def _read_docs() -> Iterator[tuple[str, bytes]]:
    """Yield the docstrings of each module, and each topic of the built-in help, in digest order."""
    modules: dict[str, Path | str] = dict(_library_files())
    helps = {f"topic {name}": f"{name}\n\n{text}\n" for name, text in topics.topics.items()}
    for name, place in sorted((modules | helps).items(), key=lambda item: _digest_name(item[0])):
        text = place if isinstance(place, str) else _collect_docstrings(name, place.read_bytes())
        if text:
            yield name, text.encode()


def _collect_docstrings(name: str, source: bytes) -> str:
    """Return the docstrings of a module under their dotted names; nothing is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the library are not ours to report
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return ""
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return "".join(f"{title}\n\n{text}\n\n\n" for title, text in _walk_docstrings(module, tree))


def _walk_docstrings(
    title: str, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[tuple[str, str]]:
    if text := ast.get_docstring(node):
        yield title, text
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk_docstrings(f"{title}.{child.name}", child)


BUILT_IN: dict[str, Callable[[], Iterator[tuple[str, bytes]]]] = {
    "python-stdlib": _read_code,
    "python-docs": _read_docs,
}
"""Kind -> (name, text) of its pieces, in an order that depends on nothing but the names."""


def _take(limit_bytes: int, texts: Iterable[bytes]) -> list[bytes]:
    """Return whole pieces up to and with the one that reaches `limit_bytes`."""
    taken: list[bytes] = []
    total = 0
    for text in texts:
        taken.append(text)
        total += len(text)
        if total >= limit_bytes:
            break
    return taken


def _length(texts: Iterable[bytes]) -> int:
    return sum(map(len, texts))


# --- the user's own files ---


def split_files(options: Mapping[str, object], context: Context) -> FileSplit:
    """Divide the user's files into training and held-out text; reads sizes and one byte of each.

    With `heldOut`, those files. Else whole files, in the order of their paths' digests, as long as
    they fit into `heldOutPercent` of all bytes; if none fits, the end of the largest file.

    Raises:
        CorpusError: an option is unknown or out of range; a path matches nothing; a file cannot
            be read; nothing is left to train on or to hold out.
    """
    known = ("paths", "heldOut", "heldOutPercent")
    if unknown := sorted(set(options) - set(known)):
        raise CorpusError("data.option", context, unknown, f"known are {', '.join(known)}")
    percent = _read_percent(options, context)
    heldout = _find_files(options.get("heldOut", ()), context.member("heldOut"))
    found = _find_files(options.get("paths"), context.member("paths"))
    train = [path for path in found if path not in set(heldout)]
    _require_text(train, context.member("paths"), options.get("paths"))
    if not heldout:
        return _split_by_percent(train, percent)
    _require_text(heldout, context.member("heldOut"), options["heldOut"])
    return FileSplit(tuple(map(_whole, train)), tuple(map(_whole, heldout)))


def _read_percent(options: Mapping[str, object], context: Context) -> int:
    percent = options.get("heldOutPercent", DEFAULT_HELDOUT_PERCENT)
    if type(percent) is not int or not 1 <= percent <= MAX_HELDOUT_PERCENT:
        bound = f"it must be a whole number from 1 to {MAX_HELDOUT_PERCENT}"
        raise CorpusError("data.held-out", context.member("heldOutPercent"), percent, bound)
    return percent


def _find_files(patterns: object, context: Context) -> list[Path]:
    """Return the files that `patterns` name, sorted, each once."""
    found: set[Path] = set()
    for number, pattern in enumerate(_read_patterns(patterns, context)):
        files = _match(pattern, context.base)
        if not files:
            place = context.member(str(number))
            raise CorpusError("data.missing", place, pattern, "it must name at least one file")
        found |= files
    return sorted(found)


def _read_patterns(value: object, context: Context) -> list[str]:
    is_list = isinstance(value, list | tuple)
    members = cast("list[object]", value) if is_list else [None]
    if not all(isinstance(member, str) and member for member in members):
        raise CorpusError("data.paths", context, value, "it must be a list of paths or globs")
    return [str(member) for member in members]


def _match(pattern: str, base: Path) -> set[Path]:
    """Return the regular files of a path, a folder (all below, hidden ones apart) or a glob."""
    named = base / pattern
    if named.is_file():
        return {named}
    if named.is_dir():
        below = ((path, path.relative_to(named)) for path in named.rglob("*"))
        return {path for path, name in below if path.is_file() and not _is_hidden(name)}
    root, relative = Path(named.anchor), named.relative_to(named.anchor)
    return {path for path in root.glob(str(relative)) if path.is_file()}


def _is_hidden(name: Path) -> bool:
    return any(part.startswith(".") for part in name.parts)


def _require_text(paths: list[Path], context: Context, value: object) -> None:
    for path in paths:
        try:
            with path.open("rb") as file:
                file.read(1)
        except OSError as error:
            bound = f"{path} cannot be read ({error.strerror}); make it readable"
            raise CorpusError("data.unreadable", context, value, bound) from error
    if not any(path.stat().st_size for path in paths):
        bound = f"its {len(paths)} files hold no text; at least one byte is needed"
        raise CorpusError("data.empty", context, value, bound)


def _whole(path: Path) -> Slice:
    return Slice(path, 0, path.stat().st_size)


def _split_by_percent(paths: list[Path], percent: int) -> FileSplit:
    files = [_whole(path) for path in paths]
    room = _total(files) * percent // 100
    heldout: list[Slice] = []
    for piece in sorted(files, key=lambda piece: _digest_name(piece.path.name)):
        if 0 < piece.stop <= room:
            heldout.append(piece)
            room -= piece.stop
    if heldout:
        return FileSplit(tuple(piece for piece in files if piece not in heldout), tuple(heldout))
    largest = max(files, key=lambda piece: piece.stop)
    cut = largest.stop - max(1, room)
    rest = (Slice(largest.path, 0, cut) if piece is largest else piece for piece in files)
    return FileSplit(tuple(rest), (Slice(largest.path, cut, largest.stop),))


def _read_slices(slices: Iterable[Slice], context: Context) -> Iterator[bytes]:
    for piece in slices:
        try:
            with piece.path.open("rb") as file:
                file.seek(piece.start)
                remaining = piece.stop - piece.start
                while chunk := file.read(min(CHUNK_BYTES, remaining)):
                    remaining -= len(chunk)
                    yield chunk
        except OSError as error:
            bound = f"it cannot be read ({error.strerror}); make it readable"
            raise CorpusError("data.unreadable", context, str(piece.path), bound) from error


# --- writing and digests ---


def _write_pair(train: Iterable[bytes], heldout: Iterable[bytes], destination: Path) -> SourceFiles:
    destination.mkdir(parents=True, exist_ok=True)
    paths = destination / TRAIN_NAME, destination / HELDOUT_NAME
    sizes = _write_whole(train, paths[0]), _write_whole(heldout, paths[1])
    return SourceFiles(*paths, SourceSizes(*sizes), *map(digest_source, paths))


def _write_whole(chunks: Iterable[bytes], path: Path) -> int:
    """Write `path` beside its place and rename it there; return its bytes."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    partial.replace(path)
    return size


def digest_source(path: Path) -> str:
    """Return the sha256 of one file, in lower-case hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- the bar that a trained model must pass ---


def bigram_entropies(train: bytes, heldout: bytes) -> tuple[float, float]:
    """Return the cross-entropies of `heldout` under unigrams and bigrams of `train`.

    Nats per byte, over all bytes of `heldout` but the first. Unigrams: counts plus one. Bigrams:
    (count(ab) + k p(b)) / (count(a) + k), p the unigram; k is whichever of PSEUDO_COUNTS suits
    `heldout` itself best, so the bigram bar errs towards being too high.

    Raises:
        ValueError: `heldout` has fewer than two bytes.
    """
    if len(heldout) < 2:  # noqa: PLR2004  # a pair
        raise ValueError(f"held-out text of {len(heldout)} bytes has no pair of bytes")
    pairs, asked = _count_pairs(train), _count_pairs(heldout)
    unigram = Counter(train)
    probability = [(unigram[byte] + 1) / (len(train) + 256) for byte in range(256)]
    num_asked = len(heldout) - 1
    unigram_nats = -sum(count * log(probability[pair & 255]) for pair, count in asked.items())
    before = _count_first(pairs)

    def cross_entropy(strength: float) -> float:
        return -sum(
            count
            * log(
                (pairs[pair] + strength * probability[pair & 255]) / (before[pair >> 8] + strength)
            )
            for pair, count in asked.items()
        )

    return unigram_nats / num_asked, min(map(cross_entropy, PSEUDO_COUNTS)) / num_asked


def _count_pairs(text: bytes) -> Counter[int]:
    """Count the pairs of neighbours, keyed by 256 x first + second.

    Two bytes are read as one native integer, once at even and once at odd positions: ten times
    faster than a pair of Python objects each.
    """
    native: Counter[int] = Counter()
    for start in (0, 1):
        stop = start + (len(text) - start) // 2 * 2
        native.update(memoryview(text)[start:stop].cast("H"))
    pairs: Counter[int] = Counter()
    for value, count in native.items():
        pairs[int.from_bytes(value.to_bytes(2, sys.byteorder), "big")] = count
    return pairs


def _count_first(pairs: Mapping[int, int]) -> Counter[int]:
    first: Counter[int] = Counter()
    for pair, count in pairs.items():
        first[pair >> 8] += count
    return first
