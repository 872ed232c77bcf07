"""Racks of trays: which ones train, which are free, which are out for repair."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from controller.core.declared.simulation import DAY_MS
from controller.core.declared.spec import Fleet
from controller.simulate.agenda import Agenda


@dataclass
class Tray:
    """One tray, by its place."""

    rack: int
    number: int
    back_ms: int = 0
    """When its repair ends; in the past: it is whole."""
    slow_ms: int = 0
    """Until when it is slow."""
    slow_percent: int = 0


@dataclass
class Cluster:
    """The whole fleet. Racks that train are numbered anew: a seat is one of their places."""

    agenda: Agenda
    racks: int
    trays_per_rack: int
    rack_seats: int
    """Racks that train."""
    tray_seats: int
    """Trays of each that train."""
    processes_per_tray: int
    trays: list[list[Tray]] = field(init=False)
    seated: list[list[Tray]] = field(default_factory=list[list[Tray]])
    """By rack that trains; empty before the first launch."""
    fewest_by_rack: list[int] = field(init=False)
    fewest: int = field(init=False)
    tray_moves: int = 0
    rack_moves: int = 0
    bare_days: set[int] = field(default_factory=set[int])
    _bare_since_ms: int | None = None

    def __post_init__(self) -> None:
        numbers = range(self.trays_per_rack)
        self.trays = [[Tray(rack, number) for number in numbers] for rack in range(self.racks)]
        self.fewest_by_rack = [self.trays_per_rack] * self.racks
        self.fewest = self.trays_per_rack * self.racks

    # What is whole, and what is free.

    def is_whole(self, tray: Tray) -> bool:
        """Return whether it is not out for repair."""
        return tray.back_ms <= self.agenda.now_ms

    def slowness_of(self, tray: Tray) -> int:
        """Return by how many percent it is slow now."""
        return tray.slow_percent if tray.slow_ms > self.agenda.now_ms else 0

    @property
    def slow_percent(self) -> int:
        """By how much steps take longer: all wait for the slowest tray."""
        return max((self.slowness_of(it) for rack in self.seated for it in rack), default=0)

    def count_whole(self, rack: int) -> int:
        """Return how many trays of a rack are whole."""
        return sum(map(self.is_whole, self.trays[rack]))

    @property
    def _used(self) -> set[int]:
        return {seats[0].rack for seats in self.seated}

    def take_stock(self) -> None:
        """Note how many trays are free now."""
        used = self._used
        free = [
            max(0, self.count_whole(rack) - (self.tray_seats if rack in used else 0))
            for rack in range(self.racks)
        ]
        self.fewest_by_rack = list(map(min, self.fewest_by_rack, free))
        self.fewest = min(self.fewest, sum(free))
        self._note_bare(is_bare=any(not free[rack] for rack in used))

    def _note_bare(self, *, is_bare: bool) -> None:
        now_ms, since_ms = self.agenda.now_ms, self._bare_since_ms
        if since_ms is not None:
            self.bare_days |= set(range(since_ms // DAY_MS, now_ms // DAY_MS + 1))
        self._bare_since_ms = now_ms if is_bare else None

    # Who trains where.

    def tray_of(self, rank: int) -> Tray:
        """Return the tray that a rank of the newest launch runs on."""
        rack, tray = divmod(rank // self.processes_per_tray, self.tray_seats)
        return self.seated[rack][tray]

    def ranks_of(self, tray: Tray) -> list[int]:
        """Return the ranks of the newest launch on a tray."""
        return [
            first + process
            for rack, seats in enumerate(self.seated)
            for seat, it in enumerate(seats)
            if it is tray
            for first in [(rack * self.tray_seats + seat) * self.processes_per_tray]
            for process in range(self.processes_per_tray)
        ]

    def place(self) -> bool:
        """Seat a whole gang on the healthiest trays; False: too few are whole."""
        chosen = self._choose_racks()
        if chosen is None:
            return False
        seated = [self._seat(index, rack) for index, rack in enumerate(chosen)]
        if self.seated:
            self._count_moves(seated)
        self.seated = seated
        self.take_stock()
        return True

    def _choose_racks(self) -> list[int] | None:
        """Return a rack with enough whole trays for each seat, where it was before if it can."""
        enough = [rack for rack in range(self.racks) if self.count_whole(rack) >= self.tray_seats]
        if len(enough) < self.rack_seats:
            return None
        before = [seats[0].rack for seats in self.seated]
        others = [rack for rack in enough if rack not in before]
        spare = iter(sorted(others, key=lambda rack: -self.count_whole(rack)))
        if not before:
            return list(spare)[: self.rack_seats]
        return [rack if rack in enough else next(spare) for rack in before]

    def _seat(self, index: int, rack: int) -> list[Tray]:
        """Return trays of a rack: those that are not slow first, then those seated before."""
        before = self.seated[index] if self.seated else []
        whole = [it for it in self.trays[rack] if self.is_whole(it)]
        kept = {it.number for it in before if it.rack == rack}
        best = sorted(whole, key=lambda it: (self.slowness_of(it), it.number not in kept))
        seats = best[: self.tray_seats]
        numbers = {it.number for it in seats}
        # Whoever stays keeps its seat; the others take those that are left.
        fresh = iter([it for it in seats if it.number not in kept])
        if not kept:
            return list(fresh)
        return [it if it.number in numbers else next(fresh) for it in before]

    def _count_moves(self, seated: list[list[Tray]]) -> None:
        for before, after in zip(self.seated, seated, strict=True):
            if before[0].rack != after[0].rack:
                self.rack_moves += 1
            else:
                self.tray_moves += sum(left is not right for left, right in zip(before, after))  # noqa: B905  # both are one rack's seats

    def seats(self) -> Iterator[Tray]:
        """Yield the trays that train."""
        for rack in self.seated:
            yield from rack

    # What breaks.

    def take_out(self, trays: list[Tray], repair_ms: int) -> None:
        """Send trays to repair, whatever ails them; one that is there stays for the longer."""
        for tray in trays:
            tray.back_ms = max(tray.back_ms, self.agenda.now_ms + repair_ms)
            tray.slow_ms = 0
        self.take_stock()

    def slow_down(self, tray: Tray, percent: int, repair_ms: int) -> None:
        """Let a tray be slow until it is repaired."""
        tray.slow_percent = max(percent, self.slowness_of(tray))
        tray.slow_ms = max(tray.slow_ms, self.agenda.now_ms + repair_ms)


def make_cluster(fleet: Fleet, agenda: Agenda) -> Cluster:
    """Return the declared fleet, all of it whole."""
    rack_seats = fleet.racks - fleet.spare_racks
    tray_seats = fleet.trays_per_rack - fleet.spare_trays_per_rack
    return Cluster(
        agenda,
        racks=fleet.racks,
        trays_per_rack=fleet.trays_per_rack,
        rack_seats=rack_seats,
        tray_seats=tray_seats,
        processes_per_tray=fleet.processes_per_tray,
    )
