"""Pictures: what is in them, what is left out where there is too much of it, and how large."""

import re
from dataclasses import replace

import pytest

from controller.report.canvas import FORMS, PHONE
from controller.report.charts import draw_rates, draw_series, draw_timeline
from controller.report.drawing import draw_forecasts, draw_progress
from controller.report.scene import Mark, Stage, set_rate_scene, set_time_scene
from controller.report.series import set_series
from controller.report.timeline import Outage, set_timeline
from tests.chronicles import a_shortened_run, told, until_proposed


@pytest.fixture(scope="module")
def evidence():
    return told(a_shortened_run()).evidence


@pytest.fixture(scope="module")
def under_way():
    return told(until_proposed()[0], last=82).evidence


def words_of(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_cone_goes_from_now_to_the_horizon_beside_deadline_and_reserve(under_way):
    words = words_of(draw_progress(set_time_scene(under_way)))
    assert {"newest forecast, P10 to P90", "reserve", "deadline"} <= set(words)


def test_cone_that_goes_far_beyond_everything_presses_nothing_flat(under_way):
    scene = set_time_scene(under_way)
    far = replace(scene, cone=replace(scene.cone, high_s=10**8))
    assert "minutes since launch" in words_of(draw_progress(far))


def test_forecasts_of_two_plans_are_no_one_series(evidence):
    svg = draw_forecasts(set_time_scene(evidence))
    # One band for each, and the reserve.
    assert svg.count('id="forecasts-desk-FillBetweenPolyCollection_') == 3


def test_hundreds_of_marks_are_ticks_of_one_path_and_names_keep_to_three_rows(evidence):
    scene = set_time_scene(evidence)
    few = draw_forecasts(scene)
    incidents = [Mark("incident", float(at), f"{at} killed") for at in range(1, 600, 3)]
    revisions = [Mark("revision", 100.0 + at, f"r{at}") for at in range(12)]
    many = draw_forecasts(replace(scene, marks=[*incidents, *revisions]))
    assert len(many) < 1.6 * len(few)
    assert not [it for it in words_of(many) if "killed" in it]
    assert 0 < len([it for it in words_of(many) if re.fullmatch(r"r\d+", it)]) <= 6


def test_mixture_is_drawn_before_and_after_each_revision(evidence):
    scene = set_rate_scene(evidence)
    words = words_of(draw_rates(scene))
    assert {"launch", "horizon,", "step 90", "text", "plan of the launch"} <= set(words)


def test_twelve_revisions_keep_the_launch_and_the_newest(evidence):
    scene = set_rate_scene(evidence)
    first, last = scene.schedules
    olds = [replace(first, name=f"revision {number}") for number in range(11)]
    many = replace(scene, schedules=[first, *olds, last])
    words = words_of(draw_rates(many))
    assert {"launch", "horizon,", "revision 10", "revision 7"} <= set(words)
    assert "revision 0" not in words


def test_small_sources_beyond_the_hues_are_one(evidence):
    scene = set_rate_scene(evidence)
    names = [f"source {number}" for number in range(9)]
    stages = [Stage(0, 320, dict.fromkeys(names, 1 / 9))]
    many = replace(
        scene, sources=names, schedules=[replace(it, stages=stages) for it in scene.schedules]
    )
    words = words_of(draw_rates(many))
    assert {"source 0", "source 4", "others"} <= set(words)
    assert "source 5" not in words


def test_gap_of_the_series_is_a_gap(evidence):
    scene = set_series(evidence)
    with_gap = [None if 40 <= index < 60 else it for index, it in enumerate(scene.buckets)]
    whole, cut = (draw_series(replace(scene, buckets=it)) for it in (scene.buckets, with_gap))
    # Speed, loss and both sides of the drops go on in a second line each.
    assert cut.count("clip-path") - whole.count("clip-path") == 4


def test_mfu_and_drops_have_a_panel_where_they_are_known(evidence):
    words = words_of(draw_series(set_series(evidence)))
    assert "MFU, %" not in words
    assert {"drops, %", "loss, nats", "tokens / s"} <= set(words)
    known = replace(evidence, peak_flops_per_second=10_240.0)
    assert "MFU, %" in words_of(draw_series(set_series(known)))


def test_two_hundred_attempts_and_incidents_stay_small(evidence):
    scene = set_timeline(evidence, rests=())
    few = draw_timeline(scene)
    assert {"1", "2", "attempts", "incidents", "lost, seconds"} <= set(words_of(few))
    many = draw_timeline(
        replace(
            scene,
            attempts=[(number, 3.0 * number, 3.0 * number + 2) for number in range(200)],
            outages=[Outage(number, "killed", 3.0 * number + 2, 1.0) for number in range(200)],
        )
    )
    assert "150" not in words_of(many)
    assert len(many) < 3 * len(few)


@pytest.mark.parametrize("form", FORMS, ids=lambda it: it.name)
def test_words_stay_inside_the_figure(evidence, form):
    svg = draw_rates(set_rate_scene(evidence), form)
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])
    places = [float(it) for it in re.findall(r'<text [^>]*\bx="([\d.-]+)"', svg)]
    assert places
    assert all(0 <= at <= width for at in places)
    assert (form is PHONE) == (width < 300)
