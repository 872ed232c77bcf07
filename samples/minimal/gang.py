"""The gang: every exchange is one message from each rank to rank 0 and one answer to all.

That one shape serves as barrier, vote, broadcast and sum. It blocks without a limit of its own:
a frozen peer is found by the watchdog of each rank that waits, a dead one by its closed socket.
"""

import json
import socket
import struct
import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from contract.exits import Exit
from minimal.ends import End
from minimal.settings import Settings

Word = dict[str, Any]
"""A small JSON object."""
Frame = tuple[Word, bytes]
Combine = Callable[[Sequence[Frame]], Frame]
"""Frames of all ranks in rank order -> the answer to all."""

HEADER = struct.Struct("<II")
CONNECT_PAUSE_S = 0.05


class PeerLost(Exception):
    """A peer's connection ended: the gang is no more."""


class Gang:
    """This rank's connections: rank 0 has one to each peer, the others one to rank 0."""

    def __init__(self, rank: int, peers: Sequence[socket.socket]) -> None:
        self._rank = rank
        self._peers = peers

    def exchange(self, word: Word, payload: bytes, combine: Combine) -> Frame:
        """Return rank 0's answer to what all ranks said; `combine` runs on rank 0 only.

        Raises:
            PeerLost: a connection is closed.
        """
        try:
            if self._rank != 0:
                _send(self._peers[0], (word, payload))
                return _receive(self._peers[0])
            frames = [(word, payload), *(_receive(peer) for peer in self._peers)]
            answer = combine(frames)
            for peer in self._peers:
                _send(peer, answer)
            return answer
        except OSError as error:
            raise PeerLost(f"a peer is gone: {error}") from error

    def vote(self, word: Word, combine: Callable[[list[Word]], Word]) -> Word:
        """Exchange words only."""
        answer, _ = self.exchange(word, b"", lambda frames: (combine([w for w, _ in frames]), b""))
        return answer

    def sum(self, values: "array[float]") -> "array[float]":
        """Return the element-wise sum over ranks, added in rank order: always the same bits."""
        _, payload = self.exchange({}, values.tobytes(), _add)
        return array("d", payload)


def _add(frames: Sequence[Frame]) -> Frame:
    total = array("d", frames[0][1])
    for _, payload in frames[1:]:
        total = array("d", [a + b for a, b in zip(total, array("d", payload), strict=True)])
    return {}, total.tobytes()


def _send(peer: socket.socket, frame: Frame) -> None:
    word = json.dumps(frame[0]).encode()
    peer.sendall(HEADER.pack(len(word), len(frame[1])) + word + frame[1])


def _receive(peer: socket.socket) -> Frame:
    word_bytes, payload_bytes = HEADER.unpack(_read(peer, HEADER.size))
    return json.loads(_read(peer, word_bytes)), _read(peer, payload_bytes)


def _read(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise ConnectionError("the connection is closed")
        data += part
    return bytes(data)


def join_gang(settings: Settings, plan_sha: str) -> Gang:
    """Return the gang once every rank is there and holds the same plan.

    There is no deadline here: the watchdog's for the phase `rendezvous` ends a rank that waits.
    """
    peers = _accept_peers(settings) if settings.rank == 0 else [_connect(settings)]
    gang = Gang(settings.rank, peers)
    held = gang.vote({"plan": plan_sha}, lambda words: {"plans": [w["plan"] for w in words]})
    if set(held["plans"]) != {plan_sha}:
        raise End(Exit.PLAN_MISMATCH, f"ranks hold different plans: {held['plans']}")
    return gang


def _hello(settings: Settings) -> Word:
    return {"run_uid": settings.run_uid, "attempt": settings.attempt, "rank": settings.rank}


def _accept_peers(settings: Settings) -> list[socket.socket]:
    peers: dict[int, socket.socket] = {}
    try:
        server = socket.create_server((settings.host, settings.port))
    except OSError as error:
        place = f"{settings.host}:{settings.port}"
        raise End(Exit.ERROR, f"cannot serve the gang on {place}: {error.strerror}") from error
    with server:
        while len(peers) < settings.ranks - 1:
            peer, _ = server.accept()
            try:
                word, _ = _receive(peer)
            except (OSError, ValueError):
                peer.close()  # a stranger, or a rank that died while it joined
                continue
            rank = word.get("rank")
            if not isinstance(rank, int) or word != _hello(settings) | {"rank": rank}:
                peer.close()  # a rank of another attempt
                continue
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peers[rank] = peer
    return [peers[rank] for rank in sorted(peers)]


def _connect(settings: Settings) -> socket.socket:
    pause = threading.Event()
    while True:
        try:
            peer = socket.create_connection((settings.host, settings.port))
        except OSError:
            pause.wait(CONNECT_PAUSE_S)
            continue
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _send(peer, (_hello(settings), b""))
        return peer
