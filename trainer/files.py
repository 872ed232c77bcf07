"""Writing files so that a crash leaves the old content or the new one, never half."""

import errno
import hashlib
import logging
import os
from pathlib import Path

LOG = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20


def write_durably(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, on disk before this returns; raises OSError."""
    waiting = path.with_name(f".{path.name}.{os.getpid()}")
    with waiting.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    waiting.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make renames inside the directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_line(path: Path, line: str) -> None:
    """Append one line in one write, so that it is there whole or not at all; raises OSError."""
    data = f"{line}\n".encode()
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        written = os.write(handle, data)
        if written < len(data):
            os.ftruncate(handle, os.fstat(handle).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(handle)


class LineWriter:
    """Appends lines to a log; what a full disk refuses is kept and written with the next line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[str] = []

    def write(self, line: str) -> bool:
        """Append `line` after those still waiting; return whether all are in the file now."""
        self._waiting.append(line)
        return self.flush()

    def flush(self) -> bool:
        """Try to append the lines that wait; return whether none is left."""
        while self._waiting:
            try:
                append_line(self._path, self._waiting[0])
            except OSError as error:
                LOG.warning("%s: %s; %d lines wait", self._path, error.strerror, len(self._waiting))
                return False
            del self._waiting[0]
        return True


def hash_file(path: Path) -> str:
    """Return the sha256 of the file in lower-case hex; raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
