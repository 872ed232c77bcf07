"""Quantities as people read them."""

import pytest

from controller.report.wording import (
    show_chance,
    show_duration,
    show_instant,
    show_iso,
    show_number,
    show_share,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0.0 s"),
        (4.24, "4.2 s"),
        (59.6, "1 min"),
        (60, "1 min"),
        (612, "10 min 12 s"),
        (3_599.7, "1 h"),
        (3_600 + 29, "1 h"),
        (2 * 3_600 + 31 * 60, "2 h 31 min"),
        (86_400 - 10, "1 d"),
        (90 * 86_400 + 4 * 3_600, "90 d 4 h"),
        (-75, "-1 min 15 s"),
    ],
)
def test_durations_have_two_units(seconds, text):
    assert show_duration(seconds) == text


def test_instants_are_in_utc_whatever_they_were_written_in():
    assert show_instant(1_700_000_000_499) == "2023-11-14 22:13:20 UTC"
    assert show_iso("2023-11-15T00:13:20.499+02:00") == "2023-11-14 22:13:20 UTC"
    assert show_instant(None) == show_iso(None) == "-"


def test_wide_numbers_have_separators():
    assert show_number(18_005_000_000_000) == "18,005,000,000,000"


def test_chances_at_the_ends_are_not_told_as_certain():
    assert [show_chance(it) for it in (None, 0, 1, 999, 1_000)] == [
        "-", "<0.1%", "0.1%", "99.9%", ">99.9%",
    ]  # fmt: skip
    assert [show_share(it) for it in (None, 0.0, 0.912)] == ["-", "<0.1%", "91.2%"]
