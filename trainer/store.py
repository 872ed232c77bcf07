"""Checkpoints as files: where they lie, whether they are whole, and the marks beside them.

Knows nothing of arrays. Existence of `LINE/STEP` is the marker of a complete checkpoint, so every
change is ordered so that a crash in between leaves a complete one or none.
"""

import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contract.canonical import hash_bytes
from contract.checkpoint import (
    CheckpointError,
    FileDigest,
    Manifest,
    QuarantineMark,
    VerifiedMark,
    encode_sealed,
    is_verified,
    read_manifest,
)
from contract.plan import Line, Plan
from contract.wire import (
    ATTEMPTS_DIR,
    CLAIM_FILE,
    MANIFEST_FILE,
    QUARANTINE_DIR,
    QUARANTINED_SUFFIX,
    VERIFIED_SUFFIX,
    WORK_DIR,
    checkpoint_dir,
    line_dir,
)
from trainer.files import hash_file, sync_directory, write_durably

LOG = logging.getLogger(__name__)


class DamageError(Exception):
    """A checkpoint is not what was saved; the message names the file or array."""


@dataclass(frozen=True)
class Place:
    """Where a complete checkpoint lies, or would lie."""

    run_dir: Path
    line: str
    step: int

    @property
    def path(self) -> Path:
        """The checkpoint's directory."""
        return self.run_dir / checkpoint_dir(self.line, self.step)

    @property
    def verified_path(self) -> Path:
        """The mark that says it was read back and was equal."""
        return self.path.with_name(f"{self.step}{VERIFIED_SUFFIX}")

    @property
    def quarantined_path(self) -> Path:
        """The mark that says it must not be used."""
        return self.path.with_name(f"{self.step}{QUARANTINED_SUFFIX}")

    @property
    def is_complete(self) -> bool:
        """Whether the directory exists, whatever the marks say."""
        return self.path.is_dir()

    @property
    def is_quarantined(self) -> bool:
        """Whether there is a quarantine mark, readable or not."""
        return self.quarantined_path.exists()

    @property
    def is_verified(self) -> bool:
        """Whether a mark vouches for exactly this manifest."""
        mark = read_if_there(self.verified_path)
        manifest = read_if_there(self.path / MANIFEST_FILE)
        return manifest is not None and is_verified(manifest, mark)


def read_if_there(path: Path) -> bytes | None:
    """Return the bytes of a file, None when there is none; other errors are raised."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def list_places(run_dir: Path, lineage: list[Line]) -> list[Place]:
    """Return the complete checkpoints of a line and its ancestors, newest step first.

    An ancestor counts up to the step where the next line left it; at equal steps the younger line
    comes first.
    """
    found: list[tuple[int, int, Place]] = []
    for depth, line in enumerate(lineage):
        last = lineage[depth + 1].fork_step if depth + 1 < len(lineage) else None
        found.extend(
            (step, depth, Place(run_dir, line.name, step))
            for step in _steps_of(run_dir / line_dir(line.name))
            if last is None or step <= last
        )
    return [place for _, _, place in sorted(found, key=lambda one: one[:2], reverse=True)]


def _steps_of(folder: Path) -> Iterator[int]:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        name = entry.name
        # As written by us: "007" or a foreign name is no step.
        if name.isascii() and name.isdigit() and name == str(int(name)) and entry.is_dir():
            yield int(name)


def check_files(place: Place, run_uid: str) -> Manifest:
    """Return the manifest after comparing every file with it, before anything parses them.

    Raises:
        DamageError: manifest, a file's size or bytes, a missing or an extra file.
    """
    data = read_if_there(place.path / MANIFEST_FILE)
    if data is None:
        raise DamageError(f"{MANIFEST_FILE} is missing")
    try:
        manifest = read_manifest(data)
    except CheckpointError as error:
        raise DamageError(f"{MANIFEST_FILE}: {error}") from error
    claimed = (manifest.run_uid, manifest.line, manifest.step)
    if claimed != (run_uid, place.line, place.step):
        raise DamageError(f"{MANIFEST_FILE} is of run, line, step {claimed}")
    _compare_names(place.path, manifest)
    for file in manifest.files:
        _check_file(place.path, file)
    return manifest


def _compare_names(folder: Path, manifest: Manifest) -> None:
    found = {str(path.relative_to(folder)) for path in walk_files(folder)} - {MANIFEST_FILE}
    listed = {file.path for file in manifest.files}
    if missing := sorted(listed - found):
        raise DamageError(f"{missing[0]} is missing")
    if extra := sorted(found - listed):
        raise DamageError(f"{extra[0]} is not in the manifest")


def _check_file(folder: Path, file: FileDigest) -> None:
    path = folder / file.path
    size_bytes = path.stat().st_size
    if size_bytes != file.size_bytes:
        raise DamageError(f"{file.path} has {size_bytes} bytes, not {file.size_bytes}")
    if hash_file(path) != file.sha256:
        raise DamageError(f"{file.path} differs from its sha256 in the manifest")


def walk_files(folder: Path) -> list[Path]:
    """Return everything below `folder` that is not a directory, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())


def digest_files(folder: Path) -> list[FileDigest]:
    """Return the size and sha256 of every file below `folder`."""
    return [
        FileDigest(
            path=str(path.relative_to(folder)),
            size_bytes=path.stat().st_size,
            sha256=hash_file(path),
        )
        for path in walk_files(folder)
    ]


class CheckpointStore:
    """Rank 0's writes: completing, marking, moving aside and deleting checkpoints of a line."""

    def __init__(self, run_dir: Path, attempt: int) -> None:
        self._run_dir = run_dir
        self._attempt = attempt

    def place(self, line: str, step: int) -> Place:
        """Return where the checkpoint of `step` on `line` lies or would lie."""
        return Place(self._run_dir, line, step)

    def work_path(self, line: str, step: int, tries: int) -> Path:
        """Return the folder in which a save is prepared; each try has its own."""
        suffix = f".{tries}" if tries else ""
        name = f"a{self._attempt}-{step}{suffix}"
        return self._run_dir / line_dir(line) / WORK_DIR / name

    def find_successor(self) -> int | None:
        """Return a higher attempt that a rank has claimed: then nothing here is ours any more."""
        for folder in (self._run_dir / ATTEMPTS_DIR).glob("*"):
            is_later = folder.name.isdigit() and int(folder.name) > self._attempt
            if is_later and any(folder.glob(f"rank-*/{CLAIM_FILE}")):
                return int(folder.name)
        return None

    def complete(self, work: Path, place: Place, manifest: Manifest) -> None:
        """Write the manifest into `work` and make it the checkpoint at `place`; raises OSError."""
        write_durably(work / MANIFEST_FILE, encode_sealed(manifest))
        self.move_quarantined(place)
        work.rename(place.path)
        sync_directory(place.path.parent)

    def move_quarantined(self, place: Place) -> None:
        """Move a quarantined checkpoint and its mark aside, so that its step can be saved anew."""
        if not place.is_quarantined:
            return
        aside = place.path.parent / QUARANTINE_DIR
        aside.mkdir(exist_ok=True)
        name = self._free_name(aside, place.step)
        if place.is_complete:
            place.path.rename(aside / name)
        place.quarantined_path.rename(aside / f"{name}{QUARANTINED_SUFFIX}")
        place.verified_path.unlink(missing_ok=True)

    def _free_name(self, aside: Path, step: int) -> str:
        base = f"{step}-a{self._attempt}"
        names = (base, *(f"{base}.{number}" for number in range(1, 1000)))
        return next(
            name
            for name in names
            if not (aside / name).exists() and not (aside / f"{name}{QUARANTINED_SUFFIX}").exists()
        )

    def mark_verified(self, place: Place) -> None:
        """Say that the checkpoint was read back and was equal; raises OSError."""
        manifest = (place.path / MANIFEST_FILE).read_bytes()
        mark = VerifiedMark(
            step=place.step, manifest_sha256=hash_bytes(manifest), attempt=self._attempt
        )
        write_durably(place.verified_path, encode_sealed(mark))

    def mark_quarantined(self, place: Place, reason: str) -> None:
        """Say that the checkpoint must not be used, and why; raises OSError."""
        manifest = read_if_there(place.path / MANIFEST_FILE)
        mark = QuarantineMark(
            step=place.step,
            reason=reason,
            attempt=self._attempt,
            manifest_sha256=None if manifest is None else hash_bytes(manifest),
        )
        write_durably(place.quarantined_path, encode_sealed(mark))
        LOG.warning("checkpoint %s/%d is quarantined: %s", place.line, place.step, reason)

    def retain(self, plan: Plan, keep: int, permanent_every: int | None) -> list[Place]:
        """Delete what lies beyond the `keep` newest verified ones; return what was deleted.

        Never a permanent one, a quarantined one, or the last verified one.
        """
        assert keep >= 1
        places = [p for p in list_places(self._run_dir, plan.lineage) if not p.is_quarantined]
        verified = [place for place in places if place.is_verified]
        if len(verified) <= keep:
            return []
        oldest_kept = verified[keep - 1].step
        doomed = [
            place
            for place in places
            if place.step < oldest_kept
            and not (permanent_every and place.step % permanent_every == 0)
        ]
        for place in doomed:
            self._delete(place)
        return doomed

    def _delete(self, place: Place) -> None:
        # Renamed first: half a checkpoint must never look like a whole one.
        grave = self.work_path(place.line, place.step, 0).with_name(
            f"a{self._attempt}-deleted-{place.step}"
        )
        grave.parent.mkdir(exist_ok=True)
        shutil.rmtree(grave, ignore_errors=True)
        place.path.rename(grave)
        place.verified_path.unlink(missing_ok=True)
        shutil.rmtree(grave, ignore_errors=True)

    def remove_own_work(self, line: str) -> None:
        """Remove what failed saves of this attempt left, which on a full disk is in the way."""
        folder = self._run_dir / line_dir(line) / WORK_DIR
        for entry in folder.glob(f"a{self._attempt}-*"):
            shutil.rmtree(entry, ignore_errors=True)

    def remove_stale_work(self, lineage: list[Line]) -> None:
        """Remove what older attempts left half done."""
        for line in lineage:
            folder = self._run_dir / line_dir(line.name) / WORK_DIR
            for entry in folder.glob("a*-*"):
                attempt = entry.name[1:].partition("-")[0]
                if attempt.isdigit() and int(attempt) < self._attempt:
                    shutil.rmtree(entry, ignore_errors=True)
