"""Reads sequences out of the sources' stores. A byte is a token.

Shapes: B sequences of L tokens.

Errors: DataError, the one class here; it names the file, and the position when a read failed.
"""

import hashlib
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TOKEN_BYTES = 1


class DataError(Exception):
    """A store cannot be read, or is not the one recorded at launch.

    `path` is the store; `position` the token offset of the read, or None outside a read.
    """

    def __init__(self, path: Path, reason: str, position: int | None = None) -> None:
        self.path = path
        self.position = position
        place = "" if position is None else f" at token {position}"
        super().__init__(f"{path}{place}: {reason}")


def verify_digest(path: Path, expected_sha256: str) -> None:
    """Check that `path` holds exactly the bytes recorded at launch.

    Raises:
        DataError: it cannot be read, or its sha256 differs.
    """
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}") from error
    if found != expected_sha256:
        raise DataError(path, f"changed since launch: sha256 {found}, recorded {expected_sha256}")


class SourceReader:
    """One source's store, opened anew for each batch.

    Not a lasting memory map: a mapped page that turns unreadable kills the process by a signal
    that names nothing, and a map hides that its file is gone. The system's page cache keeps the
    bytes in memory either way.
    """

    def __init__(self, path: Path, expect_sha256: str | None = None) -> None:
        """Take the store's size, and verify its bytes when a digest is given.

        Raises:
            DataError: missing, unreadable, empty or changed since launch.
        """
        if expect_sha256 is not None:
            verify_digest(path, expect_sha256)
        try:
            self.num_tokens = path.stat().st_size // TOKEN_BYTES
        except OSError as error:
            raise DataError(path, f"cannot be read: {error.strerror}") from error
        if not self.num_tokens:
            raise DataError(path, "is empty")
        self.path = path

    def read(self, offset: int, length: int) -> NDArray[np.int32]:
        """Return int32[length + 1]: the tokens from `offset` and the one that follows them.

        After the store's last token comes its first.

        Raises:
            DataError: the store is gone, shorter than it was, or fails to be read.
        """
        return self.read_many([(offset, length)])[0]

    def read_many(self, spans: Sequence[tuple[int, int]]) -> list[NDArray[np.int32]]:
        """Return `read(offset, length)` for each span, opening the store once."""
        try:
            with self.path.open("rb", buffering=0) as file:
                return [self._read_span(file, offset, length) for offset, length in spans]
        except OSError as error:
            position = spans[0][0] if spans else None
            raise DataError(self.path, f"cannot be read: {error.strerror}", position) from error

    def _read_span(self, file: FileIO, offset: int, length: int) -> NDArray[np.int32]:
        assert length > 0
        assert 0 <= offset <= self.num_tokens - length, (offset, length, self.num_tokens)
        wanted = min(length + 1, self.num_tokens - offset)
        data = self._pull(file, offset, wanted)
        if wanted == length:
            data += self._pull(file, 0, 1)
        return np.frombuffer(data, dtype=np.uint8).astype(np.int32)

    def _pull(self, file: FileIO, offset: int, num_bytes: int) -> bytes:
        """Read exactly `num_bytes` bytes at `offset`; one call may return fewer (signals)."""
        file.seek(offset)
        data = bytearray()
        while len(data) < num_bytes:
            chunk = file.read(num_bytes - len(data))
            if not chunk:
                reason = f"ends early: it had {self.num_tokens} tokens at start"
                raise DataError(self.path, reason, offset + len(data))
            data += chunk
        return bytes(data)


def read_sequences(
    readers: Mapping[str, SourceReader], segments: Sequence[tuple[str, int, int]]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return tokens[B, L] and targets[B, L] of (source, offset, length) segments, in their order.

    The target of a token is the token that follows it.

    Raises:
        DataError: see `SourceReader.read`.
    """
    length = segments[0][2]
    assert all(segment[2] == length for segment in segments), "one batch, one context length"
    rows = np.empty((len(segments), length + 1), dtype=np.int32)
    for source in dict.fromkeys(segment[0] for segment in segments):
        places = [place for place, segment in enumerate(segments) if segment[0] == source]
        rows[places] = readers[source].read_many([segments[place][1:] for place in places])
    return rows[:, :-1], rows[:, 1:]
