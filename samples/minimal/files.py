"""Files that survive a crash between any two system calls."""

import os
from pathlib import Path


def write_durable(path: Path, data: bytes) -> None:
    """Write `data` to `path` and to the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data`: a reader sees the old file or the new one, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    write_durable(draft, data)
    draft.replace(path)
    sync_dir(path.parent)


def sync_dir(path: Path) -> None:
    """Make the names in the directory `path` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class LineLog:
    """A file that grows by whole lines; what a full disk refuses is kept for the next time."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._unwritten = b""

    def append(self, line: str) -> None:
        """Append one line with one call of write(); never raises OSError."""
        self._unwritten += line.encode() + b"\n"
        try:
            written = os.write(self._fd, self._unwritten)
        except OSError:
            return
        self._unwritten = self._unwritten[written:]
