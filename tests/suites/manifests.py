"""Checkpoints on disk, for tests."""

import hashlib
from pathlib import Path

from contract.checkpoint import FileDigest, Manifest
from contract.wire import STATE_DIR, LedgerHead
from tests.contract.builders import a_plan


def a_manifest(place: Path, *, step: int, line: str = "main", **changes: object) -> Manifest:
    """Write two files of state under `place` and return the manifest that describes them."""
    files: list[FileDigest] = []
    for name, data in (("a.bin", b"a" * 100), ("b.bin", b"b" * 200)):
        path = place / STATE_DIR / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        files.append(FileDigest(path=f"{STATE_DIR}/{name}", size_bytes=len(data), sha256=digest))
    manifest = Manifest(
        run_uid="u",
        attempt=1,
        line=line,
        step=step,
        plans=[a_plan()],
        ledger_head=LedgerHead(seq=1, hash="0" * 64),
        cursors={"code": 0},
        rng="none",
        mesh={"ranks": 2},
        code="test",
        last_loss="",
        arrays=[],
        files=files,
    )
    return manifest.model_copy(update=changes)
