"""Where time and tokens went: accounts of whole numbers that sum, with the difference shown."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from controller.report.blocks import Bar, Block, Cell, Paragraph, Table, Words
from controller.report.dossier import Dossier
from controller.report.scene import known_until_s, origin_s
from controller.report.wording import MS_PER_S, show_duration, show_percent

PERCENT = 100


@dataclass(frozen=True)
class TimeAccount:
    """Milliseconds of wall time by phase, largest first, and the wall time by itself."""

    phases: dict[str, int]
    wall_ms: int
    """From the launch to the newest record or step, by the clock and not by summing."""

    @property
    def sum_ms(self) -> int:
        """Of all phases."""
        return sum(self.phases.values())


@dataclass(frozen=True)
class TokenAccount:
    """Tokens by what became of them."""

    unique: int
    """Of the steps on the surviving line."""
    replayed: int
    """Of steps that were trained again."""
    left: int
    """Of steps on lines that the run left, or beyond where it left one."""
    processed: int
    """Counted one by one in the logs."""

    @property
    def sum(self) -> int:
        """What became of them, in all."""
        return self.unique + self.replayed + self.left


def account_time(dossier: Dossier) -> TimeAccount:
    """Return the wall time by phase."""
    evidence = dossier.evidence
    found = sorted(evidence.account.seconds.items(), key=lambda it: (-it[1], it[0].value))
    # The running sum is rounded, not each part, so that the parts sum to the rounded whole.
    ends = [round(it * MS_PER_S) for it in accumulate((s for _, s in found), initial=0.0)]
    parts = [after - before for before, after in pairwise(ends)]
    wall_ms = round((known_until_s(evidence) - origin_s(evidence)) * MS_PER_S)
    phases = {phase.value: ms for (phase, _), ms in zip(found, parts, strict=True)}
    return TimeAccount({name: ms for name, ms in phases.items() if ms}, wall_ms)


def account_tokens(dossier: Dossier) -> TokenAccount:
    """Return the tokens by what became of them, each counted by itself."""
    surviving = dossier.evidence.course.surviving
    processed = replayed = left = 0
    seen: dict[str, set[int]] = {}
    for record in (it for history in dossier.evidence.histories for it in history.steps):
        line, step, tokens = record.line, record.step, record.tokens
        known = seen.setdefault(line, set())
        processed += tokens
        if step in known:
            replayed += tokens
        elif step not in surviving or surviving[step].line != line:
            left += tokens
        known.add(step)
    unique = sum(record.tokens for record in surviving.values())
    return TokenAccount(unique, replayed, left, processed)


# --- as tables ---


def list_accounts(dossier: Dossier) -> Iterator[Block]:
    """Yield both accounts, each with its sum and what that lacks."""
    time, tokens = account_time(dossier), account_tokens(dossier)
    if time.wall_ms:
        yield Table(
            ("phase", "time", "exactly", "share", ""),
            [*_list_phases(time), *_list_sums(time)],
            numbers=(1, 2, 3),
            kinds={4: "b"},
        )
    else:
        yield Paragraph("No time passed since the launch.")
    if tokens.processed:
        yield Table(("tokens", "count", "share", ""), list(_list_tokens(tokens)), numbers=(1, 2),
                    kinds={3: "b"})  # fmt: skip
    else:
        yield Paragraph("No token was processed: no step was logged.")


def _list_phases(time: TimeAccount) -> Iterator[tuple[Cell, ...]]:
    for name, ms in sorted(time.phases.items(), key=lambda it: (-it[1], it[0])):
        share = PERCENT * ms / (time.wall_ms or 1)
        label = name.replace("_", " ")
        yield label, show_duration(ms / MS_PER_S), _exactly(ms), show_percent(share), Bar(share)


def _list_sums(time: TimeAccount) -> Iterator[tuple[Cell, ...]]:
    for name, ms in (("sum of the phases", time.sum_ms), ("wall time", time.wall_ms)):
        share = show_percent(PERCENT * ms / (time.wall_ms or 1))
        yield Words(name), show_duration(ms / MS_PER_S), _exactly(ms), share, ""
    missing = time.wall_ms - time.sum_ms
    shown = _difference(missing, show_duration(missing / MS_PER_S))
    yield "difference", shown, _exactly(missing), "", ""


def _exactly(ms: int) -> str:
    return f"{ms / MS_PER_S:,.3f} s"


def _difference(missing: int, shown: str) -> Words:
    return Words("0", "good") if missing == 0 else Words(shown, "bad")


def _list_tokens(tokens: TokenAccount) -> Iterator[tuple[Cell, ...]]:
    parts = (
        ("unique, on the surviving line", tokens.unique),
        ("replayed after incidents", tokens.replayed),
        ("on lines that were left", tokens.left),
    )
    for name, count in parts:
        share = PERCENT * count / tokens.processed
        yield name, f"{count:,}", show_percent(share), Bar(share)
    yield "sum", f"{tokens.sum:,}", show_percent(PERCENT * tokens.sum / tokens.processed), ""
    yield "processed, as logged", f"{tokens.processed:,}", show_percent(PERCENT), ""
    missing = tokens.processed - tokens.sum
    yield "difference", _difference(missing, f"{missing:,}"), "", ""
