"""The campaign: every fault in every phase, every pair of faults, and lives by chance."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from traceback import extract_tb

from controller.simulate.chaos.campaign import ALL_FAULTS, DAY_MS, Outcome, Pair, Tally, live
from controller.simulate.chaos.pairs import (
    PHASES,
    SEPARATOR,
    Blow,
    explain_impossible,
    list_pairs,
    list_singles,
    live_blow,
    read_blow,
)

PAIRS_OF_REST, REST = 3, 5
"""Of the lives that follow the singles, three of five are pairs, the others are left to chance.

Where that is too few for all ordered pairs, and there is room for them, they are all lived.
"""
Triple = tuple[str, str, str]


def list_names(seed: int, count: int) -> list[str]:
    """Return the names of the campaign's lives; `count` below the singles cuts them short."""
    singles = [blow.name for blow in list_singles(seed)][:count]
    paired = share_pairs(count - len(singles), len(ALL_FAULTS))
    chances = count - len(singles) - paired
    pairs = [blow.name for blow in islice(turn_pairs(seed), paired)]
    first = seed * count
    return [*singles, *pairs, *(str(first + number) for number in range(chances))]


def share_pairs(rest: int, faults: int) -> int:
    """Return how many of the lives that follow the singles are pairs of so many faults."""
    share = rest * PAIRS_OF_REST // REST
    return max(share, faults**2) if faults**2 <= rest else share


def turn_pairs(seed: int) -> Iterator[Blow]:
    """Return all pairs, again and again, each time in other phases."""
    while True:
        yield from list_pairs(seed)
        seed += 1


def read_name(name: str) -> Blow | int:
    """Return the blow that a life's name tells of, or the seed of a life by chance.

    Raises:
        ValueError: no life has this name.
    """
    return read_blow(name) if SEPARATOR in name else int(name)


def live_named(name: str) -> Outcome:
    """Return how the life of a name went; a controller that fails is a violation."""
    try:
        told = read_name(name)
        return live_blow(told) if isinstance(told, Blow) else live(told)
    except Exception as error:  # noqa: BLE001  # the outermost frame of a life: a crash is a finding
        where = extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__} in {where.name}: {str(error)[:200]}"
        return Outcome(name=name, violations=(text,))


@dataclass
class Campaign(Tally):
    """What the campaign came to so far."""

    pairs: Counter[Triple] = field(default_factory=Counter[Triple])
    """(fault, phase, second fault) -> lives."""
    unpaired: list[str] = field(default_factory=list[str])

    def add(self, outcome: Outcome) -> None:
        """Count one more life."""
        super().add(outcome)
        if SEPARATOR in outcome.name:
            self._add_pair(outcome)

    def _add_pair(self, outcome: Outcome) -> None:
        blow = read_blow(outcome.name)
        if outcome.is_paired:
            self.pairs[blow.fault, blow.phase, blow.second] += 1
        elif blow.second:
            self.unpaired.append(outcome.name)

    def list_unreached(self) -> list[Pair]:
        """Return the (fault, phase) pairs that are possible and that no life reached."""
        found = self.reached.keys() | self.met.keys()
        possible = ((blow.fault, blow.phase) for blow in list_singles(0))
        return [pair for pair in possible if pair not in found]

    def lines(self) -> Iterator[str]:
        """Return the report for people, failures last."""
        possible, unreached = len(list_singles(0)), self.list_unreached()
        yield (
            f"{self.lives} lives, {self.attempts} attempts, {self.deaths} controllers killed, "
            f"{self.simulated_ms / DAY_MS:.1f} simulated days; {self.adopted} revisions adopted, "
            f"{self.missed} missed before"
        )
        for fault, phase, reason in list_impossible():
            yield f"impossible: {fault} in {phase}: {reason}"
        for fault, phase in unreached:
            yield f"unreached: {fault} in {phase}"
        for name in self.unpaired:
            yield f"unpaired: {name}: nothing was there for the second fault to strike at"
        yield f"{possible - len(unreached)} of {possible} (fault, phase) pairs reached"
        both = {(first, second) for first, _, second in self.pairs}
        triples = possible * len(ALL_FAULTS)
        yield (
            f"{len(both)} of {len(ALL_FAULTS) ** 2} ordered pairs of faults reached, "
            f"{len(self.pairs)} of {triples} with the phase of the first"
        )
        yield f"{len(self.failed)} lives with a violation"
        yield from tell_failures(self.failed)


def list_impossible() -> list[Triple]:
    """Return (fault, phase, reason) of what cannot be."""
    return [
        (fault, phase, reason)
        for fault in sorted(ALL_FAULTS)
        for phase in PHASES
        if (reason := explain_impossible(fault, phase)) is not None
    ]


def tell_failures(failed: Sequence[Outcome]) -> Iterator[str]:
    """Return what went wrong, each with the command that repeats it."""
    for outcome in sorted(failed, key=lambda one: one.name):
        yield f"{outcome.name}: {outcome.violations[0]}"
        yield f"repeat: make chaos LIFE={outcome.name}"
