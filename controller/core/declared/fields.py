"""The kinds of values a run file holds; each refusal carries a rule id and names its bound."""

import re
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from contract.plan import Name

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MAX_DURATION_MS = 100_000 * UNITS_MS["d"]
DURATION = re.compile(r"([0-9]{1,18})(ms|s|m|h|d)")
DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?")
MAX_DECIMAL_CHARS = 60
NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
OUTSIDE_NAME = re.compile(r"[^a-z0-9._-]")
MAX_COUNT = 10**18
"""Far above any count of tokens or FLOP/s, and within what every reader of JSON keeps exact."""
YEARS = (2000, 2200)
"""Instants outside are slips, and near the ends of the calendar no offset can be applied."""
MAX_INSTANT_CHARS = 40


class Section(BaseModel):
    """A part of the run file: camelCase in YAML, exact types, no unknown members."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=to_camel, validate_default=False
    )


def parse_duration(value: object) -> int:
    """Return the milliseconds of `15m`; units ms, s, m, h, d."""
    found = DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise PydanticCustomError(
            "value.duration", 'it must be a whole number with ms, s, m, h or d, such as "15m"'
        )
    duration_ms = int(found[1]) * UNITS_MS[found[2]]
    if duration_ms > MAX_DURATION_MS:
        raise PydanticCustomError("value.duration", "it must be at most 100000 days")
    return duration_ms


def format_duration(duration_ms: int) -> str:
    """Return the shortest text that `parse_duration` reads as `duration_ms`."""
    for unit, size_ms in reversed(UNITS_MS.items()):
        if duration_ms % size_ms == 0 and duration_ms:
            return f"{duration_ms // size_ms}{unit}"
    return "0s"


def _require_some(duration_ms: int) -> int:
    if duration_ms == 0:
        raise PydanticCustomError("value.duration", "it must be longer than nothing")
    return duration_ms


Duration = Annotated[int, BeforeValidator(parse_duration), PlainSerializer(format_duration)]
"""Whole milliseconds."""
Span = Annotated[Duration, AfterValidator(_require_some)]
"""Whole milliseconds, at least one."""


def _require_instant(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text[:MAX_INSTANT_CHARS])
    except ValueError as error:
        raise PydanticCustomError(
            "value.instant", 'it must be an instant such as "2027-01-31T18:00:00+01:00"'
        ) from error
    if not YEARS[0] <= moment.year < YEARS[1]:
        raise PydanticCustomError(
            "value.instant-year",
            "it must be in the years {low} to {high}",
            {"low": YEARS[0], "high": YEARS[1] - 1},
        )
    if moment.tzinfo is None:
        raise PydanticCustomError(
            "value.instant-offset", 'it needs an offset: "Z", or "+01:00", after the time'
        )
    return text


InstantText = Annotated[str, AfterValidator(_require_instant)]


def _require_decimal(text: str) -> str:
    if not DECIMAL.fullmatch(text) or len(text) > MAX_DECIMAL_CHARS:
        raise PydanticCustomError(
            "value.decimal",
            "it must be a decimal string of at most {chars} characters, without sign or exponent, "
            'such as "0.003"',
            {"chars": MAX_DECIMAL_CHARS},
        )
    return text


DecimalString = Annotated[str, AfterValidator(_require_decimal)]


def _require_name(text: str) -> str:
    if not NAME.fullmatch(text):
        outside = OUTSIDE_NAME.search(text)
        # Said by its number: a Cyrillic letter looks like a Latin one.
        why = f" (here is U+{ord(outside[0]):04X})" if outside else ""
        raise PydanticCustomError(
            "value.name",
            "it must be 1 to 63 of a-z, 0-9, '.', '_' and '-', with a letter or digit at each"
            " end{why}",
            {"why": why},
        )
    return text


RunName = Annotated[
    Name, BeforeValidator(lambda value: _require_name(value) if isinstance(value, str) else value)
]


def _percent(low: int, high: int) -> AfterValidator:
    def require(value: int) -> int:
        if not low <= value <= high:
            raise PydanticCustomError(
                "value.percent", "it must be {low} to {high}", {"low": low, "high": high}
            )
        return value

    return AfterValidator(require)


Percent = Annotated[int, _percent(0, 100)]
Share = Annotated[int, _percent(1, 100)]
CapacityPercent = Annotated[int, _percent(1, 1000)]
Positive = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
