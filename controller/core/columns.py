"""Rows of ranks as columns of runs, so that a record of 704 ranks is as short as what differs.

A gang in lock step says the same thing 704 times. A packed list holds, for each member of its
rows, the runs of equal values down the rows; nothing is lost, and a reader still sees what was
seen: `{"rows": 704, "columns": {"alive": [[704, true]], "rank": [[704, 0, 1]]}}`.

A run is `[count, value]`, or `[count, first, step]` for whole numbers that grow evenly, or
`[count]` where the rows lack the member. Members of members are named `outer.inner`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice, pairwise, takewhile
from typing import Annotated, cast

from pydantic import Field

from contract.plan import Frozen

Row = dict[str, object]
Run = list[object]


MAX_ROWS = 1_000_000
"""No fleet has more: a record that says so is not one of ours."""
MIN_EVEN = 3
"""Any two numbers grow evenly; from three on it says something."""
ABSENT = object()
"""Stands for a member that a row lacks."""
NOTHING: Row = {}
"""Stands for inner members that a row lacks."""


class Packed(Frozen):
    """What packed rows look like in a record."""

    rows: Annotated[int, Field(ge=0, le=MAX_ROWS)]
    columns: dict[str, list[Annotated[Run, Field(min_length=1)]]]


def pack_rows(rows: Sequence[Row]) -> dict[str, object]:
    """Return `rows` as columns of runs; the same rows give the same columns."""
    columns = {name: _pack(values) for name, values in _cut_columns(rows, "")}
    return {"rows": len(rows), "columns": columns}


def unpack_rows(packed: object) -> list[Row]:
    """Return the rows that were packed; a list, as older ledgers hold it, is returned as it is."""
    if isinstance(packed, list):
        return cast("list[Row]", packed)
    form = Packed.model_validate(packed)
    rows: list[Row] = [{} for _ in range(form.rows)]
    for name, runs in form.columns.items():
        *path, last = name.split(".")
        _check_runs(name, runs, form.rows)
        for row, value in zip(rows, _unpack(runs), strict=True):
            if value is not ABSENT:
                _find(row, path)[last] = value
    return rows


def _check_runs(name: str, runs: Sequence[Run], num_rows: int) -> None:
    """Raise ValueError unless the runs fill the rows: before anything is made that long."""
    for count, *rest in runs:
        is_even = len(rest) < len(("first", "step")) or {*map(type, rest)} == {int}
        if type(count) is not int or count < 1 or len(rest) > len(("first", "step")) or not is_even:
            raise ValueError(f"column {name} holds what is no run")
    if sum(cast("int", run[0]) for run in runs) != num_rows:
        raise ValueError(f"column {name} does not fill {num_rows} rows")


def _cut_columns(rows: Sequence[Row], prefix: str) -> Iterator[tuple[str, list[object]]]:
    """Yield each member's values down the rows, those of inner members by their full name."""
    for name in dict.fromkeys(chain.from_iterable(rows)):
        assert "." not in name, name
        values = [row.get(name, ABSENT) for row in rows]
        inner = [cast("Row", it) if type(it) is dict else NOTHING for it in values]
        if any(inner):
            yield from _cut_columns(inner, f"{prefix}{name}.")
            values = [ABSENT if held else it for it, held in zip(values, inner, strict=True)]
        if any(value is not ABSENT for value in values):
            yield prefix + name, values


def _find(row: Row, path: Sequence[str]) -> Row:
    for name in path:
        inner = row.setdefault(name, {})
        if not isinstance(inner, dict):
            raise ValueError(f"column {name} holds values and members at once")
        row = cast("Row", inner)
    return row


def _pack(values: Sequence[object]) -> list[Run]:
    runs: list[Run] = []
    start = 0
    while start < len(values):
        run = _find_run(values, start)
        runs.append(run)
        start += cast("int", run[0])
    return runs


def _find_run(values: Sequence[object], start: int) -> Run:
    """Return the longest run that begins at `start`."""
    value, count = values[start], _count_equal(values, start)
    if value is ABSENT:
        return [count]
    if count == 1 and type(value) is int:
        even = _count_even(values, start)
        if even >= MIN_EVEN:
            return [even, value, cast("int", values[start + 1]) - value]
    return [count, value]


def _count_equal(values: Sequence[object], start: int) -> int:
    # Equal values of unequal types, such as 1 and true, are different things.
    first, end = values[start], start + 1
    if values.count(first) == len(values) and len({*map(type, values)}) == 1:
        return len(values) - start
    while end < len(values) and values[end] == first and type(values[end]) is type(first):
        end += 1
    return end - start


def _count_even(values: Sequence[object], start: int) -> int:
    """Return how many whole numbers from `start` on grow by the same step."""
    numbers = takewhile(lambda value: type(value) is int, islice(values, start, None))
    steps = groupby(right - left for left, right in pairwise(cast("Iterator[int]", numbers)))
    _, first = next(steps, (0, ()))
    return 1 + sum(1 for _ in first)


def _unpack(runs: Iterable[Run]) -> Iterator[object]:
    for run in runs:
        count = cast("int", run[0])
        match run[1:]:
            case []:
                yield from [ABSENT] * count
            case [value]:
                yield from [value] * count
            case even:
                start, width = cast("list[int]", even)
                yield from (start + index * width for index in range(count))
