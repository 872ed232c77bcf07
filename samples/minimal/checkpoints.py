"""Checkpoints on disk: where they lie, what may be restored, and how damage is told."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
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
from contract.plan import Plan
from contract.wire import (
    CHECKPOINTS_DIR,
    MANIFEST_FILE,
    QUARANTINED_SUFFIX,
    STATE_DIR,
    VERIFIED_SUFFIX,
    line_dir,
)
from minimal.files import write_atomic
from minimal.learner import digest_state

State = dict[str, bytes]
ARRAY_SUFFIX = ".f32"


class Damage(Exception):
    """A checkpoint is not what its manifest says; the text names the file or the array."""


@dataclass(frozen=True)
class Place:
    """Where the checkpoint of one step of one line lies, with its marks beside it."""

    line_path: Path
    step: int

    @property
    def path(self) -> Path:
        """The directory: that it exists is the marker of completeness."""
        return self.line_path / str(self.step)

    @property
    def verified(self) -> Path:
        """The mark that it was read back and was equal."""
        return self.line_path / f"{self.step}{VERIFIED_SUFFIX}"

    @property
    def quarantined(self) -> Path:
        """The mark that it must not be used."""
        return self.line_path / f"{self.step}{QUARANTINED_SUFFIX}"

    def is_verified(self) -> bool:
        """Return whether a sound mark vouches for the manifest as it is now."""
        manifest = read_bytes(self.path / MANIFEST_FILE)
        return manifest is not None and is_verified(manifest, read_bytes(self.verified))

    def is_usable(self) -> bool:
        """Return whether nobody has quarantined it."""
        return not self.quarantined.exists()


def read_bytes(path: Path) -> bytes | None:
    """Return the file's content, None when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def list_places(line_path: Path) -> list[Place]:
    """Return every complete checkpoint of a line, in no order."""
    if not line_path.is_dir():
        return []
    names = [path.name for path in line_path.iterdir()]
    return [Place(line_path, int(name)) for name in names if name.isascii() and name.isdigit()]


def list_lineage(run_dir: Path, plan: Plan) -> list[Place]:
    """Return the checkpoints on the plan's lines up to where each was left, newest first."""
    found: list[Place] = []
    ends = [after.fork_step for _, after in pairwise(plan.lineage)]
    for line, end in zip(plan.lineage, [*ends, plan.total_steps], strict=True):
        places = list_places(run_dir / line_dir(line.name))
        # Later lines first among equal steps: sorted() below keeps the order of equals.
        found = [place for place in places if place.step <= end] + found
    return sorted(found, key=lambda place: place.step, reverse=True)


def list_everything(run_dir: Path) -> Iterator[Place]:
    """Yield every complete checkpoint of the run, whatever line it is on, newest first."""
    root = run_dir / CHECKPOINTS_DIR
    lines = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    places = [place for line in lines for place in list_places(line)]
    yield from sorted(places, key=lambda place: place.step, reverse=True)


def load_manifest(place: Place) -> Manifest:
    """Return the manifest of a checkpoint; raises Damage."""
    try:
        data = (place.path / MANIFEST_FILE).read_bytes()
        manifest = read_manifest(data)
    except OSError as error:
        raise Damage(f"{MANIFEST_FILE}: {error.strerror}") from error
    except CheckpointError as error:
        raise Damage(f"{MANIFEST_FILE}: {error}") from error
    if (manifest.line, manifest.step) != (place.line_path.name, place.step):
        raise Damage(f"{MANIFEST_FILE}: made at {manifest.line}/{manifest.step}, not here")
    return manifest


def load_state(place: Place, manifest: Manifest) -> State:
    """Return the arrays after every file and every array agreed with the manifest.

    Raises:
        Damage: a file is missing, extra, of another size or content, or an array differs.
    """
    wanted = {file.path for file in manifest.files}
    actual = {
        str(path.relative_to(place.path))
        for path in place.path.rglob("*")
        if not path.is_dir() and path != place.path / MANIFEST_FILE
    }
    for path in sorted(wanted ^ actual):
        raise Damage(f"{path}: {'missing' if path in wanted else 'not in the manifest'}")
    state: State = {}
    for file in manifest.files:
        name = file.path.removeprefix(f"{STATE_DIR}/").removesuffix(ARRAY_SUFFIX)
        state[name] = _load_file(place.path, file)
    _compare_arrays(manifest, state)
    return state


def _load_file(root: Path, file: FileDigest) -> bytes:
    try:
        data = (root / file.path).read_bytes()
    except OSError as error:
        raise Damage(f"{file.path}: {error.strerror}") from error
    if len(data) != file.size_bytes:
        raise Damage(f"{file.path}: {len(data)} bytes, not {file.size_bytes}")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise Damage(f"{file.path}: its sha256 differs from the manifest")
    return data


def _compare_arrays(manifest: Manifest, state: State) -> None:
    found = {digest.path: digest for digest in digest_state(state)}
    wanted = {digest.path: digest for digest in manifest.arrays}
    for path in sorted(found.keys() | wanted.keys()):
        if found.get(path) != wanted.get(path):
            raise Damage(f"array {path} does not match its digest")


def mark_verified(place: Place, attempt: int) -> None:
    """Vouch for the checkpoint with the manifest as it is now."""
    manifest = (place.path / MANIFEST_FILE).read_bytes()
    mark = VerifiedMark(step=place.step, manifest_sha256=hash_bytes(manifest), attempt=attempt)
    write_atomic(place.verified, encode_sealed(mark))


def mark_quarantined(place: Place, reason: str, attempt: int) -> None:
    """Forbid the checkpoint; it stays where it is until its step is saved again."""
    manifest = read_bytes(place.path / MANIFEST_FILE)
    mark = QuarantineMark(
        step=place.step,
        reason=reason,
        attempt=attempt,
        manifest_sha256=None if manifest is None else hash_bytes(manifest),
    )
    write_atomic(place.quarantined, encode_sealed(mark))
