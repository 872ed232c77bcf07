"""Noticing at once that a peer is gone, whatever this rank waits for.

A lost peer does not end every survivor's step with an error, and nothing ends a survivor that
compiles or restores. So each rank holds a connection to rank 0: the system closes it the moment a
process dies. A frozen peer keeps its connection, that is the watchdog's case.
"""

import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from contract.exits import Exit
from trainer.ends import leave
from trainer.gang import Gang, GangError
from trainer.phases import PhaseClock
from trainer.watchdog import dump_stacks

LOG = logging.getLogger(__name__)

ADDRESS = "peers/address"
GOODBYE = b"."
"""Sent by a rank that leaves as agreed."""
GRACE_S = 1.0
"""For the main thread or the watchdog, which know more, to end the rank first."""
RANK_BYTES = 4


class PeerWatch:
    """One rank's connections to its peers: to all of them on rank 0, to rank 0 elsewhere."""

    def __init__(self, clock: PhaseClock, rank_dir: Path, end: Callable[..., None] = leave) -> None:
        self._clock = clock
        self._rank_dir = rank_dir
        self._end = end
        self._links: list[socket.socket] = []
        self._is_over = False

    def start(self, gang: Gang, host: str, timeout_s: float) -> None:
        """Connect all ranks; raises GangError when one does not come."""
        if gang.ranks == 1:
            return
        try:
            if gang.rank == 0:
                self._serve(gang, host, timeout_s)
            else:
                self._connect(gang, timeout_s)
        except OSError as error:
            raise GangError(f"no connection between the ranks: {error}") from error

    def say_goodbye(self) -> None:
        """Tell the peers that this rank's end is agreed, and watch them no longer."""
        self._is_over = True
        for link in self._links:
            try:
                link.sendall(GOODBYE)
            except OSError as error:
                LOG.info("a peer left first: %s", error)

    def _serve(self, gang: Gang, host: str, timeout_s: float) -> None:
        with socket.create_server((host, 0)) as server:
            gang.store.put(ADDRESS, f"{host}:{server.getsockname()[1]}")
            server.settimeout(timeout_s)
            for _ in range(gang.ranks - 1):
                link, _ = server.accept()
                link.settimeout(timeout_s)
                rank = int.from_bytes(link.recv(RANK_BYTES, socket.MSG_WAITALL), "big")
                self._watch(link, rank)

    def _connect(self, gang: Gang, timeout_s: float) -> None:
        address = gang.share(ADDRESS, None, timeout_s)
        host, _, port = address.rpartition(":")
        link = socket.create_connection((host, int(port)), timeout_s)
        link.sendall(gang.rank.to_bytes(RANK_BYTES, "big"))
        self._watch(link, 0)

    def _watch(self, link: socket.socket, rank: int) -> None:
        link.settimeout(None)
        self._links.append(link)
        threading.Thread(
            target=self._listen, args=(link, rank), name=f"peer-{rank}", daemon=True
        ).start()

    def _listen(self, link: socket.socket, rank: int) -> None:
        with link:
            try:
                word = link.recv(1)
            except OSError:
                word = b""
        if word == GOODBYE or self._is_over:
            return
        threading.Event().wait(GRACE_S)
        if self._is_over:
            return
        dump_stacks(self._rank_dir)
        text = f"rank {rank} is gone; this rank was in phase {self._clock.phase}"
        self._end(self._rank_dir, Exit.PEER_LOST, step=self._clock.step, text=text)
