"""Fetches one small page over HTTP: one deadline for all of it, one bound on its size.

By hand, because the timeouts of libraries are per read: a peer that drips a byte a second is read
for hours. Nothing of the environment counts (no proxy), no name is looked up (a look-up knows no
deadline), no redirect is followed, nothing is unpacked.
"""

import ipaddress
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

CHUNK_BYTES = 65_536
HEAD_BYTES = 16_384
LOCALHOST = "127.0.0.1"
STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})\b")
HEAD_END = b"\r\n\r\n"
MAX_DIGITS = 12


class FetchError(Exception):
    """No page; the text says why."""


class Unreachable(FetchError):
    """Nobody listens there; perhaps a moment later."""


@dataclass(frozen=True)
class Limits:
    """What a fetch may cost at most."""

    within_s: float
    """From the call to the last byte."""
    max_bytes: int
    """Of the answer, its head not counted."""


@dataclass(frozen=True)
class _Head:
    """What an answer says before its body."""

    status: int
    fields: Mapping[str, str]
    size: int
    """Bytes of the head itself."""

    @property
    def body_bytes(self) -> int | None:
        """The length that is announced, None where the connection's end is the end."""
        if "content-length" not in self.fields:
            return None
        text = self.fields["content-length"].strip()
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            raise FetchError(f"announces a length of {text[:MAX_DIGITS]!r}")
        return int(text)


def fetch(host: str, port: int, path: str, limits: Limits) -> bytes:
    """Return the body of the page at `path`.

    Raises:
        Unreachable: nobody listens there.
        FetchError: anything else; the text says what.
    """
    deadline = time.monotonic() + limits.within_s
    address = resolve(host)
    try:
        with socket.create_connection((address, port), limits.within_s) as link:
            # HTTP/1.0: the answer comes in one piece, and ends the connection.
            words = f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nAccept-Encoding: identity\r\n"
            link.sendall(f"{words}Connection: close\r\n\r\n".encode())
            return _receive(link, deadline, limits)
    except ConnectionRefusedError as error:
        raise Unreachable("nobody listens there") from error
    except TimeoutError as error:
        raise FetchError(f"no whole answer within {limits.within_s:g} s") from error
    except OSError as error:
        raise FetchError(error.strerror or str(error)) from error


def resolve(host: str) -> str:
    """Return the numeric address that is meant; only `localhost` needs no look-up."""
    if host == "localhost":
        return LOCALHOST
    try:
        return str(ipaddress.ip_address(host))
    except ValueError as error:
        raise FetchError(f"the host is {host[:40]!r}; it must be an IP address") from error


def _receive(link: socket.socket, deadline: float, limits: Limits) -> bytes:
    data, head = bytearray(), None
    while head is None or len(data) - head.size < _wanted(head, limits):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        link.settimeout(left_s)
        if not (chunk := link.recv(CHUNK_BYTES)):
            break
        data += chunk
        head = head or _read_head(bytes(data))
        if head is not None and len(data) - head.size > limits.max_bytes:
            raise FetchError(f"answers more than {limits.max_bytes} bytes")
    if head is None:
        raise FetchError("it closed the connection without an answer")
    body = bytes(data[head.size :])
    if head.body_bytes is not None and len(body) < head.body_bytes:
        raise FetchError(f"it closed after {len(body)} of {head.body_bytes} bytes")
    return body[: head.body_bytes]


def _wanted(head: _Head, limits: Limits) -> int:
    """Return how many bytes of body to wait for, one more than allowed where none are announced."""
    if head.body_bytes is not None and head.body_bytes > limits.max_bytes:
        raise FetchError(f"answers more than {limits.max_bytes} bytes")
    return limits.max_bytes + 1 if head.body_bytes is None else head.body_bytes


def _read_head(data: bytes) -> _Head | None:
    """Return the head once it is whole.

    Raises:
        FetchError: it is none, or one of an answer that is not taken.
    """
    begin, end, _ = data.partition(HEAD_END)
    if not end:
        if len(data) > HEAD_BYTES or not b"HTTP/1.".startswith(data[:7]):
            raise FetchError("it speaks no HTTP")
        return None
    status = STATUS_LINE.match(begin)
    if status is None:
        raise FetchError("it speaks no HTTP")
    lines = begin.decode("latin-1").split("\r\n")[1:]
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (it.partition(":") for it in lines)
    }
    head = _Head(int(status[1]), fields, len(begin) + len(end))
    if head.status != HTTPStatus.OK:
        raise FetchError(f"answers {head.status}")
    packed = [fields.get(name, "") for name in ("content-encoding", "transfer-encoding")]
    if any(it.strip().lower() not in ("", "identity") for it in packed):
        raise FetchError("answers in a packed form, which was not asked for")
    return head
