"""A run's directory: prepared whole or not at all, and read again by whoever steers it next.

Nothing of a launch is visible before it is complete: text, run file and identity are made in a
hidden folder beside the runs, which is renamed to the run's name at the end.
"""

import contextlib
import errno
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from contract import wire
from contract.canonical import encode_canonical
from contract.config import SourceFiles
from contract.wire import Identity
from controller.adapters import corpus
from controller.adapters.files import (
    check_identity,
    read_identity,
    read_or_none,
    write_atomically,
    write_once,
)
from controller.adapters.given import read_given_text
from controller.adapters.ledger import create_ledger
from controller.adapters.system import port_errors
from controller.core.declared.launched import GivenFile, LaunchedRun, LaunchFacts
from controller.core.declared.problems import Problem, SpecError, show_value, suggest_name
from controller.core.declared.run_file import parse_run_file, to_problems
from controller.core.declared.slips import check_room
from controller.core.declared.spec import RunFile
from controller.core.declared.spec_rules import check_deadline, check_sources
from controller.ports import Damaged, Refused

LAUNCH_FILE = "launch.json"
CONTROLLER_LOG = "controller.log"
DRILLS_FILE = "drills.jsonl"
FOLDERS = (wire.INTENTS_DIR, wire.PLANS_DIR, wire.ATTEMPTS_DIR, wire.CHECKPOINTS_DIR)
OF_THE_TRAINER = "jax"
"""Looked for, never imported: the controller must start without it."""
INSTALL_TRAINER = (
    'make setup in a clone, or pip install "WHEEL[trainer]" with the path of the wheel'
)
REAL_TRAINER = ("-P", "-m", "trainer.train")
PYTHONS = frozenset({"python", "python3"})
STAGING_PREFIX = ".launching-"
GATE_PREFIX = ".gate-"
WARM_PREFIX = ".warm-"
"""Of the folder beside the runs that holds what an admission test compiled, until the launch."""


def read_given(path: Path) -> GivenFile:
    """Return the run file at `path`.

    Raises:
        SpecError: it cannot be read, or holds problems.
    """
    text = read_given_text(path, "FILE", "List the samples: ls samples/*.yaml")
    return GivenFile(path, text, parse_run_file(text, str(path)))


def check_given(
    given: GivenFile, now_wall_ms: int, *, measure: bool = False, is_launch: bool = False
) -> None:
    """Check what only this machine can tell: text, trainer and deadline; writes nothing.

    `measure`: make the built-in text, too, in a temporary folder, as its size is known only
    then. A launch finds out when it writes the text; a dry run must refuse the same.
    `is_launch`: the run begins now, so that all of it must fit before the deadline.

    Raises:
        SpecError: with every problem found.
    """
    spec = given.run_file.spec
    problems = to_problems(check_deadline(spec, now_wall_ms), given.advice)
    if is_launch:
        problems += to_problems(check_room(spec, now_wall_ms), given.advice)
    problems += check_fleet(given)
    problems += check_command(given)
    sizes: dict[str, SourceFiles] = {}
    for name, source in spec.data.sources.items():
        try:
            found = corpus.check_source(source.kind, source.options, _context(given, name))
            if source.kind != "files":
                if not measure:
                    continue
                found = _measure_text(given, name)
        except corpus.CorpusError as error:
            problems.append(_explain_corpus(error, given.advice))
            continue
        sizes[name] = SourceFiles(
            train="-", heldout="-", train_sha256="0" * 64, heldout_sha256="0" * 64,
            train_tokens=max(1, found.train_bytes),
            heldout_tokens=max(1, found.heldout_bytes),
        )  # fmt: skip
    problems += to_problems(check_sources(spec, sizes), given.advice)
    if problems:
        raise SpecError(problems)


def check_fleet(given: GivenFile) -> Sequence[Problem]:
    """Return why the fleet cannot be launched."""
    kind = given.run_file.spec.fleet.kind
    if kind == "local":
        return []
    bound = "it cannot be launched or measured yet, only rehearsed"
    advice = f"Next: ctl simulate {given.path}"
    return [Problem("fleet.not-built", "spec.fleet.kind", show_value(kind), bound, advice)]


def _measure_text(given: GivenFile, name: str) -> corpus.SourceSizes:
    """Return the sizes of a source as a launch would write it; raises CorpusError."""
    source = given.run_file.spec.data.sources[name]
    with port_errors("cannot measure the text"), tempfile.TemporaryDirectory() as folder:
        written = corpus.write_source(
            source.kind, source.options, Path(folder), _context(given, name)
        )
        return written.sizes


def _context(given: GivenFile, name: str) -> corpus.Context:
    base = given.path.parent
    return corpus.Context(f"spec.data.sources.{name}", str(given.path), base)


def _explain_corpus(error: corpus.CorpusError, advice: str) -> Problem:
    bound, value = error.bound, error.value
    if error.rule == "data.option" and isinstance(value, list):
        hint = suggest_name(str(cast("list[object]", value)[0]), SOURCE_OPTIONS)
        if hint.endswith("?"):
            bound = f"{bound}. {hint}"
    return Problem(error.rule, error.field, show_value(error.value), bound, advice)


SOURCE_OPTIONS = ("kind", "paths", "heldOut", "heldOutPercent")


def count_tokens(given: GivenFile) -> dict[str, int]:
    """Return the training tokens of the sources with text: exact of files, else the least.

    Raises:
        SpecError: with every problem found.
    """
    problems: list[Problem] = []
    tokens: dict[str, int] = {}
    for name, source in given.run_file.spec.data.sources.items():
        if source.kind == corpus.COUNTED:
            continue
        try:
            found = corpus.check_source(source.kind, source.options, _context(given, name))
            tokens[name] = max(1, found.train_bytes)
        except corpus.CorpusError as error:
            problems.append(_explain_corpus(error, given.advice))
    if problems:
        raise SpecError(problems)
    return tokens


def check_command(given: GivenFile) -> Sequence[Problem]:
    """Return what is wrong with the trainer's command."""
    command = given.run_file.spec.trainer.command
    if command is None:
        return _check_own_trainer(given)
    resolved = resolve_command(given.run_file, given.path.parent)
    problems: list[Problem] = []
    field = "spec.trainer.command"
    if shutil.which(resolved[0]) is None:
        bound = "it must be a program on the PATH or a path to one"
        problems.append(
            Problem("trainer.command", field, show_value(command[0]), bound, given.advice)
        )
    for word in resolved[1:]:
        if word.endswith(".py") and not _is_file(Path(word)):
            bound = "there is no such file (paths start at the run file's folder)"
            problems.append(Problem("trainer.file", field, show_value(word), bound, given.advice))
    return problems


def _check_own_trainer(given: GivenFile) -> Sequence[Problem]:
    """Return whether the trainer of this distribution lacks what it computes with."""
    if importlib.util.find_spec(OF_THE_TRAINER) is not None:
        return []
    bound = "it must be given: without it the run needs JAX, which is not installed here"
    advice = f"Install it: {INSTALL_TRAINER}. Or: {given.advice}"
    return [Problem("trainer.missing", "spec.trainer.command", None, bound, advice)]


def command_of(run: LaunchedRun) -> tuple[str, ...]:
    """Return the program and arguments of one rank."""
    return resolve_command(run.run_file, Path(run.facts.run_file).parent)


def resolve_command(run_file: RunFile, base: Path) -> tuple[str, ...]:
    """Return the command with paths made absolute; `python` is the one that runs the controller."""
    command = run_file.spec.trainer.command
    if command is None:
        return (sys.executable, *REAL_TRAINER)
    words = [str((base / word).resolve()) if _is_file(base / word) else word for word in command]
    return (sys.executable if command[0] in PYTHONS else words[0], *words[1:])


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a program after -c is longer than the name of any file
        return False


# --- making one ---


def create_run(given: GivenFile, runs_dir: Path, run_uid: str, wall_s: float) -> LaunchedRun:
    """Make the run's directory, text included, and return it.

    Raises:
        SpecError: the text turns out to be too short for the run; nothing is left behind.
        Refused: another launch made the directory meanwhile; nothing is left behind.
        Unavailable: the disk cannot be written; nothing is left behind.
    """
    name = given.run_file.metadata.name
    with port_errors(f"cannot prepare run {name}"):
        runs_dir.mkdir(parents=True, exist_ok=True)
        staging = runs_dir / f"{STAGING_PREFIX}{name}-{os.getpid()}"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        try:
            _fill(staging, given, runs_dir / name, (run_uid, wall_s))
            _take_name(staging, runs_dir / name)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
    return load_run(runs_dir / name)


def _take_name(staging: Path, final: Path) -> None:
    try:
        staging.rename(final)
    except OSError as error:
        # A rename replaces an empty folder and nothing else.
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise Refused(
                f"{final} was launched meanwhile. Next: ctl status {final.name}"
            ) from error
        raise


def _fill(staging: Path, given: GivenFile, final: Path, birth: tuple[str, float]) -> None:
    sources = {name: _write_text(staging, given, name) for name in given.run_file.spec.data.sources}
    problems = to_problems(check_sources(given.run_file.spec, sources), given.advice)
    if problems:
        raise SpecError(problems)
    for folder in FOLDERS:
        (staging / folder).mkdir()
    facts = LaunchFacts(run_file=str(given.path.resolve()), sources=sources)
    write_once(staging / LAUNCH_FILE, encode_canonical(facts.model_dump(mode="json")))
    write_once(staging / wire.RUN_FILE, given.text.encode())
    create_ledger(staging / wire.LEDGER_DIR)
    _move_programs(final.with_name(f"{WARM_PREFIX}{final.name}"), staging / wire.PROGRAMS_DIR)
    run_uid, wall_s = birth
    identity = Identity(
        run_uid=run_uid,
        name=given.run_file.metadata.name,
        directory=str(final.resolve()),
        inode=staging.stat().st_ino,  # a rename keeps it
        created_wall_s=wall_s,
    )
    write_once(staging / wire.IDENTITY_FILE, identity.model_dump_json().encode())


def keep_programs(run_dir: Path, runs_dir: Path, name: str) -> None:
    """Keep what the ranks of a throw-away run compiled, for the launch of the run `name`."""
    _move_programs(run_dir / wire.PROGRAMS_DIR, runs_dir / f"{WARM_PREFIX}{name}")


def lend_programs(runs_dir: Path, place: Path, name: str) -> None:
    """Move what is kept for the run `name` to `place`, where a throw-away run of it is made."""
    _move_programs(runs_dir / f"{WARM_PREFIX}{name}", place / f"{WARM_PREFIX}{name}")


def _move_programs(source: Path, target: Path) -> None:
    # Without them a start is slower, and nothing else: no reason to fail.
    with contextlib.suppress(OSError):
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            source.rename(target)


def _write_text(staging: Path, given: GivenFile, name: str) -> SourceFiles:
    source = given.run_file.spec.data.sources[name]
    place = f"{wire.DATA_DIR}/{name}"
    try:
        written = corpus.write_source(
            source.kind, source.options, staging / place, _context(given, name)
        )
    except corpus.CorpusError as error:
        raise SpecError([_explain_corpus(error, given.advice)]) from error
    return SourceFiles(
        train=f"{place}/{written.train.name}",
        heldout=f"{place}/{written.heldout.name}",
        train_tokens=written.sizes.train_bytes,
        heldout_tokens=written.sizes.heldout_bytes,
        train_sha256=written.train_sha256,
        heldout_sha256=written.heldout_sha256,
    )


# --- reading one ---


def load_run(directory: Path) -> LaunchedRun:
    """Return the run in `directory`, which is the original.

    Raises:
        Unavailable: no run was launched here.
        Refused: the directory is a copy.
        Damaged: a file of the launch is missing or was changed beyond reading.
    """
    with port_errors(f"cannot read the run in {directory}"):
        check_identity(directory)
    return read_run(directory)


def read_run(directory: Path) -> LaunchedRun:
    """Return the run in `directory`, original or copy: only for who reads and never steers.

    Raises:
        Unavailable: no run was launched here.
        Damaged: a file of the launch is missing or was changed beyond reading.
    """
    with port_errors(f"cannot read the run in {directory}"):
        identity = read_identity(directory)
        facts = _read_facts(directory)
        text = read_or_none(directory / wire.RUN_FILE)
    if text is None:
        raise Damaged(f"{directory / wire.RUN_FILE} is missing")
    try:
        run_file = parse_run_file(text.decode(), str(directory / wire.RUN_FILE), is_accepted=True)
    except (SpecError, UnicodeDecodeError) as error:
        raise Damaged(f"the accepted run file no longer reads: {error}") from error
    return LaunchedRun(directory, identity, run_file, facts, text)


def _read_facts(directory: Path) -> LaunchFacts:
    data = read_or_none(directory / LAUNCH_FILE)
    if data is None:
        raise Damaged(f"{directory / LAUNCH_FILE} is missing")
    try:
        return LaunchFacts.model_validate_json(data)
    except ValidationError as error:
        raise Damaged(f"{directory / LAUNCH_FILE}: {error.errors()[0]['msg']}") from error


def accept_run_file(run: LaunchedRun, given: GivenFile) -> LaunchedRun:
    """Replace the accepted run file by a changed one whose changes were judged allowed.

    Raises:
        SpecError: the run's text, written at launch, does not suffice; nothing was changed.
    """
    problems = to_problems(check_sources(given.run_file.spec, run.facts.sources), given.advice)
    if problems:
        raise SpecError(problems)
    facts = run.facts.model_copy(update={"run_file": str(given.path.resolve())})
    write_atomically(run.directory / LAUNCH_FILE, encode_canonical(facts.model_dump(mode="json")))
    write_atomically(run.directory / wire.RUN_FILE, given.text.encode())
    return load_run(run.directory)


def find_run(runs_dir: Path, name: str) -> Path:
    """Return the directory of the run `name`.

    Raises:
        Refused: there is none; the message lists those that are there.
    """
    directory = runs_dir / name
    if (directory / wire.IDENTITY_FILE).is_file():
        return directory
    known = list_runs(runs_dir)
    there = f"runs there: {', '.join(known)}" if known else "no run was launched there yet"
    advice = "ctl status" if known else "ctl launch FILE, or --runs-dir, where the runs lie"
    raise Refused(f'{runs_dir} holds no run "{name}"; {there}. Next: {advice}')


def list_runs(runs_dir: Path) -> list[str]:
    """Return the names of the runs in `runs_dir`, sorted."""
    found = runs_dir.glob(f"*/{wire.IDENTITY_FILE}")
    return sorted(path.parent.name for path in found if not path.parent.name.startswith("."))


def text_of(run: LaunchedRun) -> Mapping[str, tuple[bytes, bytes]]:
    """Return source -> (training text, held-out text).

    Raises:
        Unavailable: a file cannot be read.
    """
    with port_errors("cannot read the run's text"):
        return {
            name: (
                (run.directory / files.train).read_bytes(),
                (run.directory / files.heldout).read_bytes(),
            )
            for name, files in run.facts.sources.items()
        }
