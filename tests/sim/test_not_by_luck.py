"""When the contingency is proposed and when it is not, over months, under a whole run file.

A run at its usual pace takes 78 days; its window closes on day 19.5. Nothing is proposed before it
trained for 4 days, and then after three late evaluations a day apart.
"""

import pytest

from tests.sim.stories import a_story

WINDOW_DAY = 19.5
TARGET = 800


def days_of(story, verb):
    """Return when acts under a verb were decided, to a tenth of a day."""
    return [round(day, 1) for day, _ in story.acts(verb)]


def chances(story, since_day=0.0):
    """Return P(on time) in permille at each evaluation from a day on."""
    return [a.forecast.on_time_permille for day, a in story.acts("evaluate") if day >= since_day]


def horizons(story):
    """Return the total steps of each plan of the chain."""
    return [plan.total_steps for plan in story.memory.chain]


def test_run_on_pace_with_failures_finishes_and_nothing_is_ever_proposed():
    story = a_story(100)
    for third_day in range(2, 80, 3):
        story.kill(third_day + 0.3)
    story.run(90)
    assert story.life.is_completed
    assert len(story.memory.incidents) == 26
    assert not story.acts("propose")
    assert min(chances(story)) > 900


def test_slow_down_after_the_window_is_reported_only():
    story = a_story(100)
    story.slow_to(WINDOW_DAY + 1, 150)
    story.run(27)
    assert max(chances(story, 22)) < 100
    assert story.memory.late >= 3
    assert not story.acts("propose")


def test_slow_down_that_recovers_makes_the_proposal_void_and_says_why():
    story = a_story(100, "mode: propose")
    story.slow_to(5.5, 150)
    story.slow_to(10.5, 100)
    story.run(14)
    assert days_of(story, "propose") == [8.0]
    (closed,) = story.memory.closed
    assert closed.outcome == "void"
    assert "P(on time) of the unchanged plan is 99%, above 30%" in closed.reason
    assert horizons(story) == [390_251]


@pytest.mark.parametrize("late_before", [0, 2])
def test_pause_is_no_reason_to_propose_and_what_follows_needs_its_own_row(late_before):
    story = a_story(93)
    if late_before:
        story.slow_to(5.5, 150)
    story.at(7.5, lambda: story.life.ask("suspend"))
    story.at(12, lambda: story.life.ask("resume"))
    story.run(11.9)
    assert story.memory.rest == "suspended"
    assert len(story.acts("evaluate")) == 7
    assert not story.acts("propose")
    story.run(13.5)
    assert chances(story, 12)[0] < chances(story)[0]
    assert not story.acts("propose")
    story.run(15)
    assert days_of(story, "propose") == ([14.0] if late_before else [])


def test_incident_among_the_evaluations_neither_counts_nor_resets():
    story = a_story(100)
    story.slow_to(4.9, 150)
    for day in (5.5, 6.5, 6.7):
        story.kill(day)
    story.run(8)
    late = [(round(day), a.is_late) for day, a in story.acts("evaluate")]
    assert late == [(1, False), (2, False), (3, False), (4, False), (5, True), (6, True), (7, True)]
    assert len(story.memory.incidents) == 3
    assert days_of(story, "propose") == days_of(story, "evaluate")[6:7]


def test_blind_spell_is_no_evidence_of_lateness():
    story = a_story(100)
    story.slow_to(4.9, 150)
    for port in ("progress", "telemetry", "store"):
        story.at(5.5, lambda port=port: story.world.blind.add(port))
    story.at(9.5, story.world.blind.clear)
    story.run(9.4)
    assert len(story.acts("evaluate")) == 5
    story.run(10.9)
    late = [round(day, 1) for day, a in story.acts("evaluate") if a.is_late]
    assert late == [5.1, 9.5, 10.5]
    assert days_of(story, "propose") == [10.5]


def test_last_call_before_the_window_closes_proposes_whenever_p_is_under_its_target():
    story = a_story(87)
    story.run(20)
    ((day, proposed),) = story.acts("propose")
    assert 17 < day < WINDOW_DAY
    assert proposed.proposal.is_last_call
    assert 100 < proposed.proposal.facts.before.on_time_permille < TARGET
    assert story.memory.plan.total_steps == 382_445
    assert story.memory.adopted[0].adopted_step is not None


def test_floor_is_never_approved_by_the_controller_and_says_what_is_missing():
    story = a_story(60)
    story.run(9)
    ((_, proposed),) = story.acts("propose")
    proposal = proposed.proposal
    assert proposal.is_floor
    assert proposal.facts.after.on_time_permille < TARGET
    assert proposal.facts.shortfall_ms > 0
    assert not story.acts("approve")
    story.life.approve()
    story.run(10)
    assert horizons(story) == [390_251, 292_689]
    assert story.memory.adopted[0].approval.by == "owner"


EAGER = "mode: auto, onTimePercent: 55, clearAbovePercent: 60"


def a_story_of_two_slow_downs(contingency=EAGER):
    """Return a run that is slower from day 4 on, and slower still from day 9 on."""
    story = a_story(100, contingency)
    story.slow_to(4.5, 125)
    story.slow_to(9, 142)
    return story


def test_second_revision_waits_for_the_cool_down_of_the_first():
    story = a_story_of_two_slow_downs()
    story.run(16)
    adopted, _ = story.acts("record_adoption")
    first, second = story.acts("propose")
    assert [round(day) for day, _ in story.acts("approve")] == [7, 14]
    assert 7.0 <= round(second[0] - adopted[0], 3) < 8.0
    assert first[1].proposal.change.total_steps > second[1].proposal.change.total_steps
    assert len(story.memory.adopted) == 2
    assert sorted(horizons(story), reverse=True) == horizons(story)


def test_no_more_revisions_than_declared():
    story = a_story_of_two_slow_downs(f"{EAGER}, maxRevisions: 1")
    story.run(19)
    assert len(story.acts("propose")) == 1
    assert story.memory.late >= 3


def test_mode_off_evaluates_and_proposes_nothing():
    story = a_story(66, "mode: off")
    story.run(12)
    assert len(story.acts("evaluate")) == 11
    assert story.memory.late >= 3
    assert not story.acts("propose")


def test_approval_after_expiry_is_refused():
    story = a_story(100, "mode: propose")
    story.slow_to(4.5, 140)
    story.run(7.5)
    ((proposed_at, proposed),) = story.acts("propose")
    story.run(proposed_at + 6.9)
    assert story.memory.proposal is not None
    story.run(proposed_at + 7.1)
    (closed,) = story.memory.closed
    assert closed.outcome == "expired"
    story.life.approve(proposed.proposal.id)
    story.run(proposed_at + 7.2)
    assert f"proposal {proposed.proposal.id} is not open" in story.answer
    assert not story.memory.answers[-1].accepted
    assert horizons(story) == [390_251]


def reboot(story):
    """Let the machine restart: the monotonic clock begins anew."""
    for rank in story.world.gang.alive():
        rank.has_shim = False
        story.world.gang.kill(rank)
    story.world.agenda.reboot()
    story.life.reconciler = None


def test_restart_of_the_machine_neither_ages_a_proposal_nor_hurries_evaluations():
    story = a_story(100, "mode: propose")
    story.slow_to(4.5, 140)
    for day in (7.2, 8.3, 9.4):
        story.at(day, lambda: reboot(story))
    story.run(11.5)
    assert len(story.acts("propose")) == 1
    assert story.memory.proposal is not None
    assert len(story.acts("evaluate")) == 11


def test_restart_of_the_machine_does_not_end_the_cool_down():
    story = a_story_of_two_slow_downs()
    story.at(12.3, lambda: reboot(story))
    story.run(13.5)
    assert story.memory.late >= 3
    assert len(story.acts("propose")) == 1


def test_proposal_is_void_once_its_own_horizon_would_not_do():
    story = a_story(100, "mode: propose")
    story.slow_to(4.5, 140)
    story.slow_to(8, 170)
    story.run(9.5)
    assert days_of(story, "propose") == [7.0]
    assert "P(on time) at the proposed horizon fell to" in story.memory.closed[0].reason
    assert story.memory.closed[0].outcome == "void"


def test_edit_of_the_deadline_makes_the_proposal_void():
    story = a_story(66, "mode: propose")
    story.run(7)
    assert story.memory.proposal is not None
    deadline_ms = story.memory.policy.terms.deadline_wall_ms
    story.life.amend(deadline_wall_ms=deadline_ms + 40 * 86_400_000)
    story.run(13)
    assert [closed.reason for closed in story.memory.closed] == ["the owner moved the deadline"]
    assert len(story.acts("propose")) == 1
    assert min(chances(story, 7)) > 900
