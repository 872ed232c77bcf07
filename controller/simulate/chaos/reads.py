"""What becomes of calls between a controller and its ports: old answers, swapped ones, no way.

An answer may be one that was given before, or come after the one that follows it; one controller
may be cut off from some ports while another reaches all of them.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import cast

from controller.ports import Unavailable
from controller.runtime.observe import Ports

READS = {
    ("fleet", "observe"): "fleet",
    ("telemetry", "read"): "telemetry",
    ("progress", "read"): "progress",
    ("checkpoints", "observe"): "store",
    ("checkpoints", "probe"): "storage",
    ("intents", "read"): "intents",
    ("publisher", "read_control"): "control",
}
"""(port, method) -> the field of the snapshot that it fills."""
READ_PORTS = tuple(READS.values())
EVERYWHERE = frozenset(one.name for one in fields(Ports)) - {"clock"}
LEDGER = frozenset({"ledger"})
KEPT = 8
"""Answers of each read that may come again."""

Call = Callable[..., object]


@dataclass
class Reads:
    """The answers on their way to whichever controller asks."""

    stale: dict[str, object] = field(default_factory=dict[str, object])
    """Read -> what it answers, whatever is true."""
    held: dict[str, object] = field(default_factory=dict[str, object])
    """Of a swapped read: the answer that is overtaken by the next one."""
    seen: dict[str, deque[object]] = field(default_factory=dict[str, deque[object]])
    _is_late: dict[str, bool] = field(default_factory=dict[str, bool])

    def freeze(self, name: str, back: int) -> None:
        """Let a read answer what it answered `back` answers ago, until it is restored."""
        if answers := self.seen.get(name):
            self.stale[name] = answers[max(-len(answers), -1 - back)]

    def swap(self, name: str) -> None:
        """Let every second answer of a read come after the one that follows it."""
        if answers := self.seen.get(name):
            self.held[name] = answers[-1]
            self._is_late[name] = False

    def restore(self, name: str) -> None:
        """Let a read answer freshly and in order."""
        self.stale.pop(name, None)
        self.held.pop(name, None)

    def clear(self) -> None:
        """Let all answers come fresh and in their order."""
        self.stale.clear()
        self.held.clear()

    def pass_on(self, name: str, fresh: object) -> object:
        """Return what the controller gets to see instead of the answer."""
        self.seen.setdefault(name, deque(maxlen=KEPT)).append(fresh)
        if name in self.stale:
            return self.stale[name]
        if name in self.held:
            self._is_late[name] = not self._is_late[name]
            if not self._is_late[name]:
                fresh, self.held[name] = self.held[name], fresh
        return fresh


@dataclass
class Link:
    """What one controller reaches."""

    down: frozenset[str] = frozenset()
    """Ports that it does not."""


@dataclass
class Wire:
    """One port at the far end of a link."""

    port: object
    name: str
    reads: Reads
    link: Link

    def __getattr__(self, method: str) -> object:
        """Return the port's method, with what may become of its calls."""
        call = cast("Call", getattr(self.port, method))
        read = READS.get((self.name, method))

        def sent(*values: object, **named: object) -> object:
            if self.name in self.link.down:
                raise Unavailable(f"{self.name} cannot be reached")
            answer = call(*values, **named)
            return answer if read is None else self.reads.pass_on(read, answer)

        return sent


def connect(ports: Ports, reads: Reads, link: Link) -> Ports:
    """Return the same ports at the far end of `link`."""
    wires = {name: Wire(getattr(ports, name), name, reads, link) for name in EVERYWHERE}
    return replace(ports, **wires)
