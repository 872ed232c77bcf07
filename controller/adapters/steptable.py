"""A step log in columns: a run of months has a million steps, and each weighs a hundred bytes.

Rows look like StepRecord to whoever reads them, and are made when they are asked for.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast, overload

from pydantic import ValidationError

from contract.wire import Drops, StepRecord
from controller.adapters.files import open_file
from controller.adapters.system import port_errors

INTEGERS = ("step", "tokens", "assignments")
FLOATS = ("step_s", "data_wait_s", "wall_s")
MAX_INTEGER = 2**63 - 1


class _Setting(NamedTuple):
    """What hardly changes from step to step: kept once."""

    line: str
    plan_sha: str
    execution_sha: str
    code: str
    groups: tuple[str, ...]
    tags: tuple[str, ...]


class StepTable(Sequence[StepRecord]):
    """The steps of one attempt, oldest first."""

    def __init__(self, records: Iterable[StepRecord] = ()) -> None:
        self.integers = {name: array("q") for name in INTEGERS}
        self.floats = {name: array("d") for name in FLOATS}
        self.sides = array("q"), array("q")
        """Drops of senders and of receivers."""
        self.losses, self.norms = array("d"), array("d")
        self.settings: list[_Setting] = []
        self.setting = array("L")
        self.rates: list[array[float]] = []
        """One column for each parameter group, in the order of the row's setting."""
        self._known: dict[_Setting, int] = {}
        for record in records:
            self.append(record)

    def append(self, record: StepRecord) -> None:
        """Take one more step, whole or not at all.

        Raises:
            ValueError: a number is no number, or none that a step can have.
        """
        integers = [*(getattr(record, name) for name in INTEGERS), *_sides_of(record)]
        rates = {group: float.fromhex(rate) for group, rate in record.lr.items()}
        loss, norm = float.fromhex(record.loss), float.fromhex(record.grad_norm)
        if max(map(abs, integers)) > MAX_INTEGER:
            raise ValueError(f"a step does not count to {max(integers, key=abs)}")
        for column, value in zip((*self.integers.values(), *self.sides), integers, strict=True):
            column.append(value)
        for name, column in self.floats.items():
            column.append(getattr(record, name))
        self.losses.append(loss)
        self.norms.append(norm)
        self._append_rates([*rates.values()])
        self.setting.append(self._find_setting(record))

    def _append_rates(self, rates: Sequence[float]) -> None:
        while len(self.rates) < len(rates):
            self.rates.append(array("d", bytes(8 * len(self.setting))))
        for index, column in enumerate(self.rates):
            column.append(rates[index] if index < len(rates) else 0.0)

    def _find_setting(self, record: StepRecord) -> int:
        setting = _Setting(
            record.line, record.plan_sha, record.execution_sha, record.code, tuple(record.lr),
            tuple(record.tags),
        )  # fmt: skip
        index = self._known.setdefault(setting, len(self.settings))
        if index == len(self.settings):
            self.settings.append(setting)
        return index

    def __len__(self) -> int:
        return len(self.setting)

    @overload
    def __getitem__(self, index: int) -> StepRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StepRecord]: ...
    def __getitem__(self, index: int | slice) -> StepRecord | Sequence[StepRecord]:
        if isinstance(index, slice):
            return [self._row(row) for row in range(*index.indices(len(self)))]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(index)
        return self._row(row)

    def __iter__(self) -> Iterator[StepRecord]:
        return map(self._row, range(len(self)))

    def _row(self, row: int) -> StepRecord:
        # It has the members of a record, which is all that readers know of one.
        return cast("StepRecord", StepRow(self, row))


class StepRow:
    """One step of a table."""

    __slots__ = ("_row", "_table")

    def __init__(self, table: StepTable, row: int) -> None:
        self._table = table
        self._row = row

    @property
    def _setting(self) -> _Setting:
        return self._table.settings[self._table.setting[self._row]]

    @property
    def line(self) -> str:
        """See StepRecord, as for all that follow."""
        return self._setting.line

    @property
    def step(self) -> int:
        return self._table.integers["step"][self._row]

    @property
    def plan_sha(self) -> str:
        return self._setting.plan_sha

    @property
    def execution_sha(self) -> str:
        return self._setting.execution_sha

    @property
    def code(self) -> str:
        return self._setting.code

    @property
    def lr(self) -> dict[str, str]:
        rates = self._table.rates
        return {
            group: rates[index][self._row].hex() for index, group in enumerate(self._setting.groups)
        }

    @property
    def loss(self) -> str:
        return self._table.losses[self._row].hex()

    @property
    def grad_norm(self) -> str:
        return self._table.norms[self._row].hex()

    @property
    def tokens(self) -> int:
        return self._table.integers["tokens"][self._row]

    @property
    def assignments(self) -> int:
        return self._table.integers["assignments"][self._row]

    @property
    def drops(self) -> Drops:
        return Drops.model_construct(
            sender=self._table.sides[0][self._row], receiver=self._table.sides[1][self._row]
        )

    @property
    def step_s(self) -> float:
        return self._table.floats["step_s"][self._row]

    @property
    def data_wait_s(self) -> float:
        return self._table.floats["data_wait_s"][self._row]

    @property
    def wall_s(self) -> float:
        return self._table.floats["wall_s"][self._row]

    @property
    def tags(self) -> tuple[str, ...]:
        return self._setting.tags


def _sides_of(record: StepRecord) -> tuple[int, int]:
    return record.drops.sender, record.drops.receiver


def read_steps(path: Path) -> StepTable:
    """Return the steps of a log, read line by line; a torn or foreign line is left out.

    Raises:
        Unavailable: it cannot be read.
    """
    table = StepTable()
    with port_errors(f"cannot read {path}"):
        try:
            with open_file(path) as file:
                for line in file:
                    _take(table, line)
        except FileNotFoundError:
            return table
    return table


def _take(table: StepTable, line: bytes) -> None:
    try:
        table.append(StepRecord.model_validate_json(line))
    except (ValidationError, ValueError, OverflowError):
        return  # torn by a full disk, or not a step that can have been
