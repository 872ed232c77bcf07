import json

import pytest

from contract import wire
from controller.adapters import corpus, rundir
from controller.core.declared.problems import SpecError
from controller.ports import Damaged, Refused
from tests.run_files import GOOD, spoil, write_good


@pytest.fixture
def given(tmp_path):
    return rundir.read_given(write_good(tmp_path))


def few_pages():
    """An installation with next to no documentation."""
    return ((f"page {n}", b"x" * 90) for n in range(40))


def create(given, tmp_path):
    return rundir.create_run(given, tmp_path / "runs", "uid", 1.5)


def test_created_run_reads_back_as_it_was_made(given, tmp_path):
    run = create(given, tmp_path)
    again = rundir.load_run(run.directory)
    assert again == run
    assert (run.name, run.identity.run_uid, run.identity.created_wall_s) == ("probe", "uid", 1.5)
    assert run.text == GOOD.encode()
    for files in run.facts.sources.values():
        data = (run.directory / files.train).read_bytes()
        assert len(data) == files.train_tokens
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["probe"]


def test_text_that_proves_too_short_once_written_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(corpus.BUILT_IN, "python-docs", few_pages)
    monkeypatch.setattr(corpus, "BUILT_IN_FLOOR", (0, 0))
    path = write_good(tmp_path)
    source = "docs: {kind: files, paths: [text.txt], heldOutPercent: 20}"
    path.write_text(spoil(GOOD, source, "docs: {kind: python-docs}"))
    given = rundir.read_given(path)
    rundir.check_given(given, 0)  # built-in text is measured only when it is made
    with pytest.raises(SpecError, match=r"spec\.data\.sources\.docs"):
        rundir.check_given(given, 0, measure=True)  # as in a dry run
    with pytest.raises(SpecError) as caught:
        create(given, tmp_path)
    assert {problem.field for problem in caught.value.problems} == {"spec.data.sources.docs"}
    assert list((tmp_path / "runs").iterdir()) == []


def test_second_creation_never_replaces_the_first(given, tmp_path):
    run = create(given, tmp_path)
    with pytest.raises(Refused, match=r"launched meanwhile\. Next: ctl status probe"):
        create(given, tmp_path)
    assert rundir.load_run(run.directory).identity == run.identity
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["probe"]


@pytest.mark.parametrize("name", [wire.RUN_FILE, rundir.LAUNCH_FILE])
def test_missing_file_of_the_launch_is_damage(given, tmp_path, name):
    run = create(given, tmp_path)
    (run.directory / name).unlink()
    with pytest.raises(Damaged, match=name):
        rundir.load_run(run.directory)


@pytest.mark.parametrize("name", [wire.RUN_FILE, rundir.LAUNCH_FILE])
def test_garbage_in_a_file_of_the_launch_is_damage(given, tmp_path, name):
    run = create(given, tmp_path)
    (run.directory / name).write_bytes(b"\xff garbage")
    with pytest.raises(Damaged):
        rundir.load_run(run.directory)


def test_directory_whose_identity_is_of_another_place_is_a_copy(given, tmp_path):
    run = create(given, tmp_path)
    path = run.directory / wire.IDENTITY_FILE
    identity = json.loads(path.read_text())
    path.write_text(json.dumps(identity | {"inode": identity["inode"] + 1}))
    with pytest.raises(Refused, match="copy"):
        rundir.load_run(run.directory)
    assert rundir.read_run(run.directory).run_file == run.run_file


def test_accepted_file_takes_the_place_of_the_first(given, tmp_path):
    run = create(given, tmp_path)
    given.path.write_text(spoil(GOOD, "keep: 3", "keep: 4"))
    changed = rundir.accept_run_file(run, rundir.read_given(given.path))
    assert changed.run_file.spec.checkpoints.keep == 4
    assert changed.identity == run.identity
    assert changed.facts.sources == run.facts.sources


def test_unknown_name_lists_the_runs_that_are_there(given, tmp_path):
    create(given, tmp_path)
    with pytest.raises(Refused, match="runs there: probe"):
        rundir.find_run(tmp_path / "runs", "prob")


def test_paths_of_the_command_start_at_the_run_file(tmp_path):
    path = write_good(tmp_path)
    (tmp_path / "mine.py").write_text("pass")
    path.write_text(spoil(GOOD, "[python, -c, pass]", "[python, mine.py, --fast]"))
    command = rundir.resolve_command(rundir.read_given(path).run_file, tmp_path)
    assert command[1:] == (str(tmp_path / "mine.py"), "--fast")
    assert command[0].endswith("python") or "python3" in command[0]


def test_without_a_command_the_real_trainer_runs(tmp_path):
    path = write_good(tmp_path)
    path.write_text(spoil(GOOD, "  trainer: {command: [python, -c, pass]}\n", ""))
    command = rundir.resolve_command(rundir.read_given(path).run_file, tmp_path)
    assert command[1:] == rundir.REAL_TRAINER
