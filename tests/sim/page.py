"""The tables of docs/chaos.md, from what the campaign and the mutants are made of."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from controller.simulate.chaos.campaign import ALL_FAULTS
from controller.simulate.chaos.pairs import PHASES, list_singles
from controller.simulate.chaos.programme import list_impossible
from tests.sim.mutation import Mutant
from tests.sim.named_seeds import NAMED_SEEDS
from tests.sim.rows import ROWS
from tools.timeline import replace_between

PAGE = Path(__file__).parents[2] / "docs" / "chaos.md"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def quote(names: Iterable[str]) -> str:
    """Return names as code."""
    return ", ".join(f"`{name}`" for name in names)


def render_rows() -> str:
    """Return which faults stand for what can fail."""
    rows = [(row.what, quote(row.faults) or "none", row.missing or "-") for row in ROWS]
    return table(
        ("What fails", "Faults of the campaign", "Not simulated, or not handled yet"), rows
    )


def render_faults() -> str:
    """Return every fault with its meaning, and what cannot be."""
    counts = (
        f"{len(ALL_FAULTS)} faults, {len(PHASES)} phases ({quote(PHASES)}): "
        f"{len(list_singles(0))} pairs of fault and phase, {len(ALL_FAULTS) ** 2} ordered pairs of "
        "faults.\n\n"
    )
    faults = [(f"`{name}`", fault.words) for name, fault in sorted(ALL_FAULTS.items())]
    impossible: dict[tuple[str, str], list[str]] = {}
    for name, phase, reason in list_impossible():
        impossible.setdefault((phase, reason), []).append(name)
    cannot = [f"In `{it[0]}` ({it[1]}): {quote(who)}." for it, who in impossible.items()]
    text = "\nWhat cannot be: " + " ".join(cannot) + "\n"
    return counts + table(("Fault", "What happens"), faults) + text


def render_mutants(mutants: Sequence[Mutant]) -> str:
    """Return every mutant with its catcher."""
    rows = [(f"`{it.name}`", it.breaks, str(it.catcher)) for it in mutants]
    return f"{len(mutants)} mutants.\n\n" + table(("Mutant", "What it breaks", "Caught by"), rows)


def render_named() -> str:
    """Return every defect that lives under faults found."""
    rows = [(f"`{it.name}`", it.story, f"`make chaos LIFE={it.life}`") for it in NAMED_SEEDS]
    return table(("Name", "Story", "Its life"), rows)


def fill(text: str, mutants: Sequence[Mutant]) -> str:
    """Return the page with its tables as they are now."""
    tables = {
        "rows": render_rows(),
        "faults": render_faults(),
        "named": render_named(),
        "mutants": render_mutants(mutants),
    }
    for name, body in tables.items():
        begin = f"<!-- {name}: begin, written by tests.sim.mutants -->"
        text = replace_between(text, begin, f"<!-- {name}: end -->", body)
    return text
