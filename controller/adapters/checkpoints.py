"""The checkpoint store on a file system: what is there, what may be used, whether one can write."""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from contract import wire
from contract.canonical import hash_bytes
from contract.checkpoint import (
    CheckpointError,
    Manifest,
    QuarantineMark,
    encode_sealed,
    is_verified,
    read_manifest,
    read_quarantine_mark,
)
from contract.plan import Name
from contract.wire import LedgerHead
from controller.adapters.files import (
    Stamp,
    is_folder,
    numbered,
    read_or_none,
    stamp_of,
    write_once,
)
from controller.adapters.ledger import Fence
from controller.adapters.system import port_errors
from controller.core.snapshot import CheckpointView, StorageView, StoreView
from controller.ports import Unavailable

PROBE_BYTES = 64 * 1024
"""More than a full disk's last blocks, far less than anybody notices."""
TRIES = 3
RETRY_AFTER_S = 0.05
CHUNK_BYTES = 1024 * 1024
LINE_NAME: TypeAdapter[str] = TypeAdapter(Name)
ASIDE_NAME = re.compile(r"([0-9]+)-a[0-9]+(\.[0-9]+)?")
"""STEP-aATTEMPT, numbered where one was there already."""


@dataclass(frozen=True)
class _Stamps:
    """What a cached view rests on."""

    manifest: Stamp
    verified: Stamp
    quarantined: Stamp


class CheckpointFiles:
    """`checkpoints/LINE/STEP/` and the marks beside them; unchanged ones are not read again."""

    def __init__(self, run_dir: Path, *, run_uid: str, fence: Fence) -> None:
        self._run_dir = run_dir
        self._root = run_dir / wire.CHECKPOINTS_DIR
        self._run_uid = run_uid
        self._fence = fence
        self._views: dict[tuple[str, int], tuple[_Stamps, CheckpointView]] = {}
        self._aside: dict[Path, CheckpointView] = {}
        self._was_complete = False

    def observe(self) -> StoreView:
        """Return every checkpoint, lines by name, steps as numbers.

        Raises:
            Unavailable: the store cannot be read after 3 tries.
        """
        with port_errors("cannot read the checkpoints"):
            # Rank 0 deletes and renames meanwhile.
            views = _retrying()(self._list_views)
            aside = _retrying()(self._list_aside)
        self._was_complete = self._was_complete or bool(views) or self._has_traces()
        return StoreView(checkpoints=views, ever_complete=self._was_complete, set_aside=aside)

    def probe(self) -> StorageView:
        """Write, rename and delete a small file in the checkpoint directory."""
        problem = None
        staged, named = self._root / ".probe.tmp", self._root / ".probe"
        try:
            self._root.mkdir(exist_ok=True)
            with staged.open("wb") as file:
                file.write(b"\1" * PROBE_BYTES)
                file.flush()
                os.fsync(file.fileno())
            staged.replace(named)
            named.unlink()
        except OSError as error:
            problem = f"cannot write in {self._root}: {error.strerror}"
            self._remove_probes(staged, named)
        return StorageView(problem=problem, free_bytes=self._free_bytes())

    def quarantine(self, line: str, step: int, reason: str, attempt: int) -> None:
        """Mark a checkpoint as not to be used; marked already is a success.

        Raises:
            EpochLost: another controller took over.
            Unavailable: the mark cannot be written.
        """
        self._fence.check()
        with port_errors(f"cannot read the manifest of {line}/{step}"):
            manifest = read_or_none(self._place(line, step) / wire.MANIFEST_FILE)
        mark = QuarantineMark(
            step=step,
            reason=reason,
            attempt=attempt,
            manifest_sha256=None if manifest is None else hash_bytes(manifest),
        )
        write_once(self._mark(line, step, wire.QUARANTINED_SUFFIX), encode_sealed(mark))

    def damage_of(self, line: str, step: int) -> list[str]:
        """Return what differs from the manifest, file by file; empty when all bytes agree.

        Reads everything: for `doctor` and tests, not for a pass.

        Raises:
            Unavailable: a file cannot be read.
        """
        with port_errors("cannot check the checkpoint"):
            place = self._place(line, step)
            data = read_or_none(place / wire.MANIFEST_FILE)
            if data is None:
                return [f"{wire.MANIFEST_FILE} is missing"]
            try:
                manifest = self._read_manifest(line, step, data)
            except CheckpointError as error:
                return [str(error)]
            return list(_differences(place, manifest))

    def anchors(self) -> list[tuple[str, LedgerHead]]:
        """Return the ledger head in every manifest that can be read, with the manifest's name."""
        heads: list[tuple[str, LedgerHead]] = []
        with contextlib.suppress(OSError):
            for line, step in self._places():
                heads += self._anchor(line, step)
        return heads

    def _anchor(self, line: str, step: int) -> list[tuple[str, LedgerHead]]:
        try:
            data = read_or_none(self._place(line, step) / wire.MANIFEST_FILE)
            manifest = self._read_manifest(line, step, data or b"")
        except (OSError, CheckpointError):
            return []
        return [(f"checkpoint {line}/{step}", manifest.ledger_head)]

    def _list_views(self) -> list[CheckpointView]:
        views = [self._view(line, step) for line, step in self._places()]
        return [view for view in views if view is not None]

    def _places(self) -> list[tuple[str, int]]:
        if not self._root.exists():
            return []
        lines = sorted(
            it.name for it in os.scandir(self._root) if is_line(it.name) and is_folder(it)
        )
        return [(line, step) for line in lines for step in numbered(self._root / line)]

    def _list_aside(self) -> list[CheckpointView]:
        """Return what was moved aside with its mark; nothing there ever changes."""
        found = self._root.glob(f"*/{wire.QUARANTINE_DIR}/*{wire.QUARANTINED_SUFFIX}")
        marks = sorted(mark for mark in found if is_line(mark.parent.parent.name))
        read = {mark: self._aside.get(mark) or _read_aside(mark) for mark in marks}
        self._aside = {mark: view for mark, view in read.items() if view is not None}
        return list(self._aside.values())

    def _view(self, line: str, step: int) -> CheckpointView | None:
        place = self._place(line, step)
        stamps = _Stamps(
            manifest=stamp_of(place / wire.MANIFEST_FILE),
            verified=stamp_of(self._mark(line, step, wire.VERIFIED_SUFFIX)),
            quarantined=stamp_of(self._mark(line, step, wire.QUARANTINED_SUFFIX)),
        )
        cached = self._views.get((line, step))
        if cached is not None and cached[0] == stamps:
            return cached[1]
        view = self._read_view(line, step)
        # Deleted while it was read: no checkpoint, rather than a damaged one.
        if not place.exists():
            self._views.pop((line, step), None)
            return None
        self._views[line, step] = (stamps, view)
        return view

    def _read_view(self, line: str, step: int) -> CheckpointView:
        data = read_or_none(self._place(line, step) / wire.MANIFEST_FILE)
        verified = read_or_none(self._mark(line, step, wire.VERIFIED_SUFFIX))
        quarantined = read_or_none(self._mark(line, step, wire.QUARANTINED_SUFFIX))
        plan_sha = manifest_sha256 = None
        if data is not None:
            try:
                plan_sha = self._read_manifest(line, step, data).plan_sha
                manifest_sha256 = hash_bytes(data)
            except CheckpointError:
                pass
        return CheckpointView(
            line=line,
            step=step,
            plan_sha=plan_sha,
            manifest_sha256=manifest_sha256,
            verified=manifest_sha256 is not None and is_verified(data or b"", verified),
            quarantined=_reason_in(quarantined),
        )

    def _read_manifest(self, line: str, step: int, data: bytes) -> Manifest:
        manifest = read_manifest(data)
        found = (manifest.run_uid, manifest.line, manifest.step)
        if found != (self._run_uid, line, step):
            raise CheckpointError(f"the manifest is of {found}, not of {line}/{step} of this run")
        return manifest

    def _has_traces(self) -> bool:
        """Return whether a mark or a checkpoint moved aside shows that one was complete once."""
        marks = (wire.VERIFIED_SUFFIX, wire.QUARANTINED_SUFFIX)
        if not self._root.exists():
            return False
        return any(
            entry.name.endswith(marks) or entry.parent.name == wire.QUARANTINE_DIR
            for pattern in ("*/*", f"*/{wire.QUARANTINE_DIR}/*")
            for entry in self._root.glob(pattern)
        )

    def _place(self, line: str, step: int) -> Path:
        return self._run_dir / wire.checkpoint_dir(line, step)

    def _mark(self, line: str, step: int, suffix: str) -> Path:
        return self._run_dir / wire.line_dir(line) / f"{step}{suffix}"

    def _free_bytes(self) -> int:
        where = self._root if self._root.exists() else self._run_dir
        try:
            found = os.statvfs(where)
        except OSError as error:
            raise Unavailable(f"cannot look at {where}: {error.strerror}") from error
        return found.f_bavail * found.f_frsize

    def _remove_probes(self, *paths: Path) -> None:
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except OSError:
                continue


def is_line(name: str) -> bool:
    """Return whether a folder may hold a line: other names are nobody's, and may be no text."""
    try:
        LINE_NAME.validate_python(name)
    except ValidationError:
        return False
    return True


def _retrying() -> Retrying:
    return Retrying(
        stop=stop_after_attempt(TRIES),
        wait=wait_fixed(RETRY_AFTER_S),
        retry=retry_if_exception_type(OSError),
        reraise=True,
    )


def _reason_in(data: bytes | None) -> str | None:
    """Return why a checkpoint is quarantined; a mark that cannot be read still counts."""
    if data is None:
        return None
    try:
        return read_quarantine_mark(data).reason
    except CheckpointError:
        return "its quarantine mark is unreadable"


def _read_aside(mark: Path) -> CheckpointView | None:
    """Return the checkpoint that a mark in `.quarantine` tells of; None: a foreign name."""
    name = ASIDE_NAME.fullmatch(mark.name.removesuffix(wire.QUARANTINED_SUFFIX))
    data = read_or_none(mark)
    if name is None or data is None:
        return None
    return CheckpointView(
        line=mark.parent.parent.name,
        step=int(name[1]),
        plan_sha=None,
        manifest_sha256=None,
        verified=False,
        quarantined=_reason_in(data),
    )


def list_checkpoints(run_dir: Path, run_uid: str) -> StoreView:
    """Return every checkpoint of a run, for one who does not steer it; raises Unavailable."""
    # The fence is never asked: nothing is written.
    fence = Fence(run_dir / wire.LEDGER_DIR, epoch=0)
    return CheckpointFiles(run_dir, run_uid=run_uid, fence=fence).observe()


def _differences(place: Path, manifest: Manifest) -> Iterator[str]:
    expected = {file.path: file for file in manifest.files}
    present = {
        str(path.relative_to(place)): path
        for path in sorted(place.rglob("*"))
        if path.is_file() and path != place / wire.MANIFEST_FILE
    }
    for name in sorted(expected.keys() - present.keys()):
        yield f"{name} is missing"
    for name in sorted(present.keys() - expected.keys()):
        yield f"{name} is not in the manifest"
    for name in sorted(expected.keys() & present.keys()):
        size = present[name].stat().st_size
        if size != expected[name].size_bytes:
            yield f"{name} has {size} bytes, not {expected[name].size_bytes}"
        elif _hash_file(present[name]) != expected[name].sha256:
            yield f"{name} does not match its sha256"


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
