"""What was declared before the launch, and how a reader checks what the report says."""

from collections.abc import Iterable, Iterator

from controller.report.blocks import (
    Block,
    Cell,
    Fold,
    Pairs,
    Paragraph,
    Table,
    Words,
    code,
    pieces_of,
)
from controller.report.dossier import Dossier
from controller.report.trail import list_told
from controller.report.wording import show_instant


def list_declared(dossier: Dossier) -> Iterator[Block]:
    """Yield hypothesis, goals and links as they stand in the run file."""
    declared = dossier.declared
    if declared is None:
        yield Paragraph("Unknown: the run file could not be read.")
        return
    rows: list[tuple[str, Cell]] = []
    if declared.hypothesis:
        rows.append(("hypothesis", declared.hypothesis))
    rows += [(f"goal {number}", it) for number, it in enumerate(declared.goals, 1)]
    rows += [("link", Words(it, target=it)) for it in declared.links]
    if rows:
        yield Pairs(rows)
    else:
        yield Paragraph("Nothing was declared: the run file has no record section.")


def list_checks(dossier: Dossier) -> Iterator[Block]:
    """Yield the commands that prove or refute the report."""
    name = dossier.evidence.memory.policy.run_name
    yield Pairs(
        [
            ("the record is whole", code(f"ctl log {name} --verify")),
            ("every entry in words", code(f"ctl log {name}")),
            ("the same facts as JSON", code(f"ctl report {name} -o json")),
        ]
    )


def list_entries(dossier: Dossier, cited: set[int]) -> Iterator[Block]:
    """Yield the ledger's entries that the report names, and all that were more than everyday."""
    entries = list(list_told(dossier.trail, cited, dossier.since))
    if not entries:
        return
    rows = [
        (
            f"{it.seq:,}",
            show_instant(it.at.wall_ms),
            it.rule.replace("_", " "),
            it.reason,
        )
        for it in entries
    ]
    anchors = [f"entry-{it.seq}" for it in entries]
    heads = ("entry", "when", "rule", "reason")
    yield Table(heads, rows, numbers=(0,), kinds={3: "w"}, anchors=anchors)


def find_cited(blocks: Iterable[Block]) -> set[int]:
    """Return the entries that blocks link to."""
    return {int(it) for block in blocks for it in _list_targets(block)}


PREFIX = "#entry-"


def _list_targets(block: Block) -> Iterator[str]:
    for cell in _list_cells(block):
        for piece in pieces_of(cell):
            if isinstance(piece, Words) and piece.target.startswith(PREFIX):
                yield piece.target.removeprefix(PREFIX)


def _list_cells(block: Block) -> Iterator[Cell]:
    match block:
        case Table():
            yield from (cell for row in block.rows for cell in row)
        case Pairs():
            yield from (cell for _, cell in block.rows)
        case Fold():
            for inner in block.blocks:
                yield from _list_cells(inner)
        case _:
            return
