"""A peer that dies is noticed at once, one that leaves as agreed is not mourned."""

import socket
import subprocess
import sys
import threading

import pytest

from contract.exits import Exit
from contract.wire import STACKS_FILE, Phase
from tests.trainer.builders import some_gang
from tests.waiting import wait_for
from trainer.gang import GangError
from trainer.peers import ADDRESS, RANK_BYTES, PeerWatch
from trainer.phases import PhaseClock

HOST = "127.0.0.1"


class Ends(list):
    def __call__(self, rank_dir, code, *, step, text):
        self.append((code, step, text))


@pytest.fixture
def clock():
    clock = PhaseClock(None, {})
    clock.enter(Phase.COMPILE, 30)
    return clock


def connect(gangs, watches):
    threads = [
        threading.Thread(target=watch.start, args=(gang, HOST, 10))
        for gang, watch in zip(gangs, watches, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)


def test_death_of_a_peer_ends_the_others_with_stacks(tmp_path, clock):
    gangs, ends = some_gang(2), Ends()
    watch = PeerWatch(clock, tmp_path, end=ends)
    thread = threading.Thread(target=watch.start, args=(gangs[0], HOST, 10))
    thread.start()
    host, _, port = gangs[1].share(ADDRESS, None, 10).rpartition(":")
    link = socket.create_connection((host, int(port)))
    link.sendall((1).to_bytes(RANK_BYTES, "big"))
    thread.join(10)
    # The child holds the connection as well: it closes when the last process with it is gone.
    wait = [sys.executable, "-c", "import signal; signal.pause()"]
    child = subprocess.Popen(wait, pass_fds=[link.fileno()])
    link.close()
    assert not ends
    child.kill()
    child.wait()
    wait_for(lambda: ends, 10, "the loss to be noticed")
    assert ends == [(Exit.PEER_LOST, 30, "rank 1 is gone; this rank was in phase compile")]
    assert "test_peers.py" in (tmp_path / STACKS_FILE).read_text()


def test_ranks_that_say_goodbye_are_not_mourned(tmp_path, clock):
    gangs, ends = some_gang(3), Ends()
    watches = [PeerWatch(clock, tmp_path, end=ends) for _ in gangs]
    connect(gangs, watches)
    for watch in watches[1:]:
        watch.say_goodbye()
    # Rank 0 still works: the word that a peer sent is all it knows of that peer's end.
    listeners = [t for t in threading.enumerate() if t.name in ("peer-1", "peer-2")]
    for thread in listeners:
        thread.join(10)
        assert not thread.is_alive()
    assert not ends
    watches[0].say_goodbye()


def test_loss_of_rank_0_is_noticed_by_all(tmp_path, clock):
    gangs = some_gang(3)
    ends = [Ends() for _ in gangs]
    watches = [PeerWatch(clock, tmp_path, end=end) for end in ends]
    connect(gangs, watches)
    watches[0]._is_over = True
    for link in watches[0]._links:
        link.shutdown(socket.SHUT_RDWR)
    wait_for(lambda: ends[1] and ends[2], 10, "both to notice")
    assert "rank 0 is gone" in ends[1][0][2]


def test_rank_that_never_connects_is_an_error(tmp_path, clock):
    gangs = some_gang(2)
    with pytest.raises(GangError, match="no connection"):
        PeerWatch(clock, tmp_path).start(gangs[0], HOST, 0.05)


def test_gang_of_one_needs_no_connection(tmp_path, clock):
    watch = PeerWatch(clock, tmp_path)
    watch.start(some_gang(1)[0], HOST, 0.05)
    watch.say_goodbye()
