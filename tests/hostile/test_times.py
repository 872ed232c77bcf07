"""Zones, changes of the hour, leap days, clocks set back: no instant lies, no span is below 0."""

import os
import time
from datetime import datetime

import pytest

from controller.cli.codes import Code
from controller.cli.looking import to_data
from controller.cli.peek import look
from controller.cli.wording import clock, describe, show_instant, show_span
from controller.core.declared.planning import wall_ms_of
from controller.core.readings import Instant, Unknown, elapsed_ms
from controller.core.telling.account import make_account

HOUR_MS = 3_600_000


def ms(text):
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


@pytest.fixture
def zone(monkeypatch):
    """Lets the machine be in another zone."""

    def enter(name):
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield enter
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("name", "instant", "shown"),
    [
        # The hour that comes twice is told apart by its zone, the one that is left out never comes.
        ("Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25 02:30:00 CEST"),
        ("Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25 02:30:00 CET"),
        ("Europe/Berlin", "2027-03-28T00:59:59Z", "2027-03-28 01:59:59 CET"),
        ("Europe/Berlin", "2027-03-28T01:00:00Z", "2027-03-28 03:00:00 CEST"),
        ("Pacific/Kiritimati", "2026-12-31T12:00:00Z", "2027-01-01 02:00:00 +14"),
        ("Etc/GMT+12", "2027-01-01T11:00:00Z", "2026-12-31 23:00:00 -12"),
        ("Asia/Kathmandu", "2028-02-28T23:00:00Z", "2028-02-29 04:45:00 +0545"),
        ("UTC", "2028-02-29T23:59:59Z", "2028-02-29 23:59:59 UTC"),
        ("Australia/Lord_Howe", "2026-04-04T15:00:00Z", "2026-04-05 01:30:00 +1030"),
    ],
)
def test_instant_is_shown_in_the_zone_of_the_machine_and_says_which(zone, name, instant, shown):
    zone(name)
    assert show_instant(ms(instant)) == shown
    assert clock(ms(instant)) == shown.partition(" ")[2]


@pytest.mark.parametrize("name", ["Mars/Phobos", "", ":", "XYZ+99", "../../etc/passwd", "\x01"])
def test_zone_that_is_none_ends_nothing(zone, name):
    zone(name)
    assert show_instant(ms("2026-10-25T00:30:00Z")).startswith("2026-10-2")


@pytest.mark.parametrize("wall_ms", [0, -1, 2**31 * 1_000, 253_402_214_400_000])
def test_instants_at_the_ends_of_calendars_are_shown(zone, wall_ms):
    for name in ("UTC", "Pacific/Kiritimati", "Etc/GMT+12"):
        zone(name)
        assert show_instant(wall_ms)


def test_durations_across_a_change_of_the_hour_are_whole(zone):
    zone("Europe/Berlin")
    for begin, end in (
        ("2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"),
        ("2027-03-28T01:59:00+01:00", "2027-03-28T03:59:00+02:00"),
    ):
        assert ms(end) - ms(begin) == HOUR_MS
        assert show_span(ms(end) - ms(begin)) == "1 h 0 min"


@pytest.mark.parametrize("name", ["Europe/Berlin", "Pacific/Kiritimati", "Etc/GMT+12", "UTC"])
def test_deadline_is_the_same_instant_in_every_zone(zone, name):
    zone(name)
    found = wall_ms_of("2026-10-25T02:30:00+01:00")
    assert found == ms("2026-10-25T01:30:00Z")


def test_clock_that_was_set_back_after_the_launch_gives_no_second_below_zero():
    created_s, ended_s = 5_000.0, 1_000.0
    account = make_account([], created_s, ended_s, [])
    assert all(seconds >= 0 for seconds in account.seconds.values()), account


def test_clock_that_was_set_back_does_not_turn_time_around():
    before = Instant(wall_ms=10 * HOUR_MS, mono_ms=1_000, boot_id="b")
    after = Instant(wall_ms=1 * HOUR_MS, mono_ms=3_000, boot_id="b")
    assert elapsed_ms(before, after) == 2_000
    assert isinstance(elapsed_ms(before, after.model_copy(update={"boot_id": "c"})), Unknown)


def test_status_from_the_future_has_no_age_below_zero(launched, run_ctl):
    path = launched / "status.json"
    future_s = time.time() + 100_000
    os.utime(path, (future_s, future_s))
    view = look(launched)
    assert view.age_s == 0
    assert to_data(view)["age_s"] == 0
    assert "status 0 s old" in describe(view)
    assert run_ctl("ctl status probe")[0] == Code.BLIND


def test_since_of_the_hour_that_comes_twice_needs_its_offset(launched, run_ctl, zone):
    zone("Europe/Berlin")
    code, _, err = run_ctl("ctl log probe --since 2026-10-25T02:30:00")
    assert code == Code.BAD_INPUT
    assert "an instant with an offset" in err
    for offset, seen in (("+01:00", 0), ("+02:00", 0)):
        code, out, _ = run_ctl(f"ctl log probe --since 2026-10-25T02:30:00{offset}")
        assert (code, len(out.splitlines())) == (Code.DONE, seen)
    code, out, _ = run_ctl("ctl log probe --since 1970-01-01T00:00:00+14:00")
    assert len(out.splitlines()) >= 2
