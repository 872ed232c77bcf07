"""The `simulation` section, fleets of racks and counted text: rules, defaults, what is supposed."""

import re
from pathlib import Path

import pytest

from controller.core.declared.changes import compare_run_files
from controller.core.declared.planning import make_config, make_genesis, make_policy
from controller.core.declared.problems import SpecError
from controller.core.declared.run_file import parse_run_file
from controller.core.declared.simulation import DAY_MS, FAILURES, HOUR_MS, MINUTE_MS
from controller.core.declared.spec_rules import RULES
from controller.core.declared.supposition import (
    find_limit_ms,
    make_sources,
    plan_ms,
    suppose,
    work_out_throughput,
)
from tests.run_files import GOOD, some_sources, spoil

ROOT = Path(__file__).parents[4]
HERO = (ROOT / "samples" / "hero.yaml").read_text()
FLEET = "{kind: local, processes: 2, devicesPerProcess: 1}"
RACKS = "{kind: kubernetes, racks: 2, spareRacks: 1, traysPerRack: 3, spareTraysPerRack: 1}"
FILES = "{kind: files, paths: [text.txt], heldOutPercent: 20}"
TOKENS = {"code": 100_000, "docs": 100_000}
PACED = "  simulation: {throughput: [{fromDay: 0, tokensPerSecond: 500}]}\n"


def simulated(members):
    """Return the good run file with a simulation section."""
    return f"{GOOD}  simulation: {{{members}}}\n"


def problems_of(text):
    with pytest.raises(SpecError) as caught:
        parse_run_file(text, "my.yaml")
    return caught.value.problems


def refusals_of(text):
    with pytest.raises(SpecError) as caught:
        suppose(parse_run_file(text), TOKENS, "Next: mend it")
    return caught.value.problems


WRONG_SECTIONS = (
    ("simulation.first-pace", "throughput: [{fromDay: 1, tokensPerSecond: 5}]", "must be 0"),
    (
        "simulation.pace-order",
        "throughput: [{fromDay: 0, tokensPerSecond: 5}, {fromDay: 0, tokensPerSecond: 6}]",
        "spec.simulation.throughput.1.fromDay is 0; it must be above the day before it (0)",
    ),
    (
        "simulation.paces",
        f"throughput: [{', '.join(f'{{fromDay: {it}, tokensPerSecond: 5}}' for it in range(1_001))}"
        "]",
        "spec.simulation.throughput is of 1001 paces; at most 1000",
    ),
    ("simulation.peak", "mfuPercent: 20", "fleet.peakFlopsPerDevice"),
    ("simulation.drift", "driftPermille: 101", "0 to 100"),
    ("simulation.spread", "repairSpreadPercent: 301", "0 to 300"),
    ("simulation.changes", "changes: {every: 3d}", "changes.percent is 0; it must be 1 to 90"),
    ("simulation.changes", "changes: {percent: 91}", "is 91"),
    (
        "simulation.repair",
        "failures: {gpu: {effect: tray, every: 1d}}",
        "spec.simulation.failures.gpu.repair: it must be given: tray lasts until it is repaired",
    ),
    (
        "simulation.no-repair",
        "failures: {gpu: {effect: rank, every: 1d, repair: 1h}}",
        "a restart ends it",
    ),
    ("simulation.no-percent", "failures: {x: {effect: hang, every: 1d, percent: 3}}", "only slow"),
    ("value.choice", "failures: {x: {effect: explode, every: 1d}}", "effect"),
    ("value.duration", "failures: {x: {effect: rank, every: 0s}}", "longer than nothing"),
    ("value.duration", "owner: {approvesAfter: someday}", "approvesAfter"),
    ("value.instant-offset", 'launchAt: "2026-01-01T00:00:00"', "offset"),
    ("field.unknown", "failure: {}", 'Did you mean "failures"?'),
    ("field.unknown", "owner: {resumeAfter: 1h}", 'Did you mean "resumesAfter"?'),
)


@pytest.mark.parametrize(("rule", "members", "words"), WRONG_SECTIONS)
def test_wrong_section_is_refused_by_rule_field_and_bound(rule, members, words):
    found = [str(it) for it in problems_of(simulated(members)) if it.rule == rule]
    assert found
    assert words in " ".join(found)


def test_mfu_beside_a_throughput_is_refused():
    text = spoil(PACED, "simulation: {", "simulation: {mfuPercent: 20, ")
    fleet = "{kind: local, processes: 2, devicesPerProcess: 1, peakFlopsPerDevice: 1_000_000}"
    found = problems_of(spoil(GOOD, FLEET, fleet) + text)
    assert [it.rule for it in found] == ["simulation.two-paces"]


def test_launch_after_the_deadline_is_refused():
    deadline = '  deadline: {at: "2027-01-01T00:00:00Z"}\n'
    launch = '  simulation: {launchAt: "2027-01-01T01:00:00+01:00"}\n'
    [found] = problems_of(GOOD + deadline + launch)
    assert (found.rule, found.field) == ("simulation.launch", "spec.simulation.launchAt")


WRONG_FLEETS = (
    ("fleet.other-kind", "{kind: local, processes: 2, racks: 2}", "racks is of kind kubernetes"),
    ("fleet.other-kind", spoil(RACKS, "racks: 2", "racks: 2, processes: 2"), "processes is of"),
    ("fleet.missing", "{kind: kubernetes, racks: 2}", "spec.fleet.traysPerRack: it must be given"),
    ("fleet.missing", "{kind: kubernetes, traysPerRack: 2}", "spec.fleet.racks: it must be given"),
    ("fleet.spare-racks", spoil(RACKS, "spareRacks: 1", "spareRacks: 2"), "below racks (2)"),
    ("fleet.spare-trays", spoil(RACKS, "TraysPerRack: 1", "TraysPerRack: 3"), "traysPerRack (3)"),
    ("fleet.expert-axis", spoil(RACKS, "racks: 2", "racks: 2, expertAxis: 3"), "the 2 devices"),
    (
        "fleet.rack-axis",
        spoil(RACKS, "racks: 2", "racks: 3, expertAxis: 4"),
        "it must divide the 2 devices of a rack that train",
    ),
    ("value.choice", "{kind: cloud}", "'local' or 'kubernetes'"),
)


@pytest.mark.parametrize(("rule", "fleet", "words"), WRONG_FLEETS)
def test_wrong_fleet_is_refused_by_rule_field_and_bound(rule, fleet, words):
    found = [str(it) for it in problems_of(spoil(GOOD, FLEET, fleet)) if it.rule == rule]
    assert found
    assert words in " ".join(found)


WRONG_COUNTS = (
    ("data.declared-tokens", "{kind: declared}", "code.tokens: it must be a whole number above 0"),
    ("data.declared-tokens", "{kind: declared, tokens: many}", 'is "many"'),
    ("data.declared-tokens", "{kind: declared, tokens: 0}", "is 0"),
    ("data.declared-tokens", "{kind: declared, tokens: true}", "is true"),
    ("data.declared-option", "{kind: declared, tokens: 5, paths: [x]}", 'unknown option "paths"'),
)


@pytest.mark.parametrize(("rule", "source", "words"), WRONG_COUNTS)
def test_wrong_count_of_tokens_is_refused(rule, source, words):
    text = spoil(
        GOOD, "code: {kind: files, paths: [text.txt], heldOutPercent: 20}", f"code: {source}"
    )
    found = [str(it) for it in problems_of(text) if it.rule == rule]
    assert found
    assert words in " ".join(found)


def test_every_rule_of_these_sections_has_a_case_here():
    room = ROOT / "controller" / "core" / "declared"
    sources = [room / name for name in ("simulation_rules.py", "supposition.py")]
    text = "".join(path.read_text() for path in sources)
    rules = set(re.findall(r'"((?:simulation|data)\.[a-z-]+)"', text))
    told = Path(__file__).read_text()
    assert len(rules) >= 14
    assert {rule for rule in rules if f'"{rule}"' not in told} == set()
    assert len(RULES) >= 20


# --- fleets of racks ---


def test_model_case_has_704_ranks_in_11_of_12_racks():
    fleet = parse_run_file(HERO).spec.fleet
    assert (fleet.racks, fleet.spare_racks, fleet.trays_per_rack) == (12, 1, 18)
    assert (fleet.ranks, fleet.devices, fleet.axis) == (704, 704, 64)


def test_local_fleet_is_one_rack_with_a_tray_for_each_process():
    fleet = parse_run_file(GOOD).spec.fleet
    assert (fleet.racks, fleet.spare_racks) == (1, 0)
    assert (fleet.trays_per_rack, fleet.spare_trays_per_rack) == (2, 0)
    assert (fleet.ranks, fleet.ranks_per_rack, fleet.axis) == (2, 2, 2)


def test_experts_of_racks_stay_within_one_where_no_axis_is_given():
    run_file = parse_run_file(spoil(GOOD, FLEET, spoil(RACKS, "racks: 2", "racks: 3")))
    assert (run_file.spec.fleet.ranks, run_file.spec.fleet.axis) == (4, 2)


def test_policy_mesh_and_plan_of_racks_count_the_ranks_that_train():
    run_file = parse_run_file(HERO)
    sources = make_sources({"web": 1, "code": 1, "quality": 1})
    assert make_policy(run_file, "u", sources).ranks == 704
    assert make_config(run_file, "u", sources).mesh.ranks == 704
    assert make_genesis(run_file, "u", sources).total_steps == 390_251


# --- what is supposed ---


def supposed_of(text):
    return suppose(parse_run_file(text), TOKENS, "Next: mend it").spec.simulation


def test_declared_suppositions_are_kept():
    members = (
        "throughput: [{fromDay: 0, tokensPerSecond: 500}],"
        "failures: {gpu: {effect: tray, every: 3h, repair: 1h}},"
        "restart: {restore: 30s}, save: {commit: 20s}, detect: 3s,"
        'owner: {approvesAfter: never}, launchAt: "2026-03-01T00:00:00Z"'
    )
    found = supposed_of(simulated(members))
    assert [(name, it.every) for name, it in found.failures.items()] == [("gpu", 3 * HOUR_MS)]
    assert (found.restart.restore, found.save.commit, found.detect) == (30_000, 20_000, 3_000)
    assert found.owner.approves_after is None
    assert found.launch_at == "2026-03-01T00:00:00Z"


def test_failures_not_declared_are_scaled_to_the_devices():
    found = supposed_of(GOOD + PACED)
    assert found.failures["gpu"].every == FAILURES["gpu"].every * 704 // 2
    hero = suppose(parse_run_file(HERO), {}, "").spec.simulation
    assert hero.failures == FAILURES


def test_model_case_is_interrupted_about_once_a_day():
    ends = [it for it in FAILURES.values() if it.effect in ("rank", "tray", "rack", "hang")]
    assert 0.8 < sum(DAY_MS / it.every for it in ends) < 1.1


def test_one_machine_restarts_faster_than_racks():
    found = supposed_of(GOOD + PACED)
    assert found.restart.restore < MINUTE_MS
    assert found.save.commit < MINUTE_MS
    partly = supposed_of(GOOD + spoil(PACED, "{throughput", "{restart: {compile: 9s}, throughput"))
    assert partly.restart.compile == 9_000
    assert partly.restart.restore == found.restart.restore


def test_source_sizes_become_counts():
    sources = suppose(parse_run_file(GOOD + PACED), TOKENS, "").spec.data.sources
    assert {name: (it.kind, it.options) for name, it in sources.items()} == {
        name: ("declared", {"tokens": 100_000}) for name in TOKENS
    }


def test_supposing_twice_changes_nothing():
    once = suppose(parse_run_file(GOOD + PACED), TOKENS, "")
    again = suppose(once, {}, "")
    assert again == once


def test_pace_follows_from_the_mfu_of_the_model_case():
    text = re.sub(r"    throughput:.*\n(      - .*\n)+", "    mfuPercent: 21\n", HERO)
    [pace] = work_out_throughput(parse_run_file(text).spec)
    # 704 x 2.5e15 x 21% over 1.49736e11 FLOPs a token: the 2.494M of record at 21.2%.
    assert pace.tokens_per_second == pytest.approx(2_494_000 * 21 / 21.2, rel=0.003)


def test_pace_is_that_of_the_gate_where_nothing_else_says():
    text = f"{GOOD}  gate: {{minTokensPerSecond: 700}}\n"
    assert [it.tokens_per_second for it in work_out_throughput(parse_run_file(text).spec)] == [700]


def test_pace_that_nothing_says_is_refused_by_a_rehearsal_only():
    parse_run_file(GOOD)
    [problem] = refusals_of(GOOD)
    assert problem.rule == "simulation.unknown-pace"
    assert "mfuPercent" in str(problem)


def short_of(spec):
    """Return the model case at 4,096 throughout, as the published paces are."""
    schedule = spec.schedule.model_copy(update={"context": spec.schedule.context[:1]})
    return spec.model_copy(update={"schedule": schedule})


def test_plan_takes_what_the_published_paces_say():
    spec = short_of(parse_run_file(HERO).spec)
    paces = spec.simulation.throughput
    assert plan_ms(spec, paces) / DAY_MS == pytest.approx(72.3, abs=0.1)
    # 83.6 days at the pace of the launch, as published.
    assert plan_ms(spec, paces[:1]) / DAY_MS == pytest.approx(83.6, abs=0.1)


def test_longer_contexts_take_longer():
    spec = parse_run_file(HERO).spec
    pace = spec.simulation.throughput[:1]
    # 45% of the steps take 2.4% more FLOPs, 5% of them 36.5% more.
    ratio = plan_ms(spec, pace) / plan_ms(short_of(spec), pace)
    assert ratio == pytest.approx(1 + 0.45 * 0.0243 + 0.05 * 0.3652, abs=0.0001)


def test_launch_not_declared_leaves_the_plan_a_fourth_more_than_it_takes():
    text = '  deadline: {at: "2027-01-01T00:00:00Z", reserve: 10s}\n'
    # 51,200 tokens at 500 a second are 102.4 s; a fourth more and the reserve: 138 s.
    assert supposed_of(GOOD + text + PACED).launch_at == "2026-12-31T23:57:42+00:00"


LIMITS = (
    ("restart: {restore: 5m}", "spec.simulation.restart.restore is 5m"),
    ("restart: {firstStep: 5m}", "faults.deadlines.firstStep (5m)"),
    ("save: {block: 2m}", "faults.deadlines.saveBlock (2m)"),
    ("save: {commit: 5m}", "faults.commit (5m)"),
)


@pytest.mark.parametrize(("members", "words"), LIMITS)
def test_phase_longer_than_its_deadline_is_refused(members, words):
    found = refusals_of(GOOD + spoil(PACED, "{throughput", f"{{{members}, throughput"))
    assert [it.rule for it in found] == ["simulation.limit"]
    assert words in str(found[0])


def test_failures_beyond_counting_are_refused():
    members = "failures: {x: {effect: rank, every: 1ms}}"
    found = refusals_of(GOOD + spoil(PACED, "{throughput", f"{{{members}, throughput"))
    assert [it.rule for it in found] == ["simulation.many"]


ABSURD = (
    (
        "simulation.many-changes",
        spoil(PACED, "{throughput", "{changes: {every: 1ms, percent: 5}, throughput"),
        "spec.simulation.changes.every is 1ms; at most 20000 changes are rehearsed",
    ),
    (
        "simulation.far",
        '  deadline: {at: "2127-01-01T00:00:00Z"}\n'
        + spoil(PACED, "{throughput", '{launchAt: "2027-01-01T00:00:00Z", throughput'),
        "it must lie within 3660 days of simulation.launchAt (2027-01-01T00:00:00Z)",
    ),
)


@pytest.mark.parametrize(("rule", "text", "words"), ABSURD)
def test_what_would_take_more_than_memory_and_time_is_refused(rule, text, words):
    found = refusals_of(GOOD + text)
    assert [it.rule for it in found] == [rule]
    assert words in str(found[0])


def test_plan_of_centuries_is_refused_before_its_launch_is_worked_out():
    text = re.sub(r"    launchAt:.*\n", "", HERO)
    slow = re.sub(r"    throughput:.*\n(      - .*\n)+", "    mfuPercent: 1\n", text)
    with pytest.raises(SpecError) as caught:
        suppose(parse_run_file(spoil(slow, "2_500_000_000_000_000", "250_000_000_000_000")), {}, "")
    assert [it.rule for it in caught.value.problems] == ["simulation.long", "simulation.slow"]
    assert "spec.simulation.mfuPercent" in str(caught.value.problems[0])


def test_save_at_every_step_of_the_model_case_is_refused():
    with pytest.raises(SpecError) as caught:
        suppose(parse_run_file(spoil(HERO, "everySteps: 200, keep", "everySteps: 1, keep")), {}, "")
    assert [it.rule for it in caught.value.problems] == ["simulation.many-saves"]


def test_impossible_pace_is_told_at_the_field_that_it_comes_from():
    [found] = refusals_of(f"{GOOD}  gate: {{minTokensPerSecond: 1_000_000_000}}\n")
    assert (found.rule, found.field) == ("simulation.fast", "spec.gate.minTokensPerSecond")


SAYS_ITS_PACE = [
    it
    for it in sorted((ROOT / "samples").glob("*.yaml"))
    if "drill" not in it.name and it.name not in ("own-text.yaml", "too-fast.yaml")
]
"""All but the one of the first page, which gate measures, and the one that no machine passes."""


@pytest.mark.parametrize("path", SAYS_ITS_PACE, ids=lambda it: it.name)
def test_sample_can_be_rehearsed_as_it_is(path):
    run_file = parse_run_file(path.read_text())
    texts = {name: 10**7 for name, it in run_file.spec.data.sources.items() if not it.options}
    assert suppose(run_file, texts, "").spec.simulation.launch_at is not None


def test_run_is_given_up_only_after_its_deadline_and_the_plan_once_more():
    times = '  deadline: {at: "2027-03-01T00:00:00Z"}\n'
    late = spoil(PACED, "{throughput", '{launchAt: "2027-01-01T00:00:00Z", throughput')
    assert find_limit_ms(suppose(parse_run_file(GOOD + PACED), TOKENS, "").spec) == 30 * DAY_MS
    spec = suppose(parse_run_file(GOOD + times + late), TOKENS, "").spec
    assert find_limit_ms(spec) == 59 * DAY_MS + 102_400
    hero = suppose(parse_run_file(HERO), {}, "").spec
    assert find_limit_ms(hero) == 3 * plan_ms(hero, hero.simulation.throughput)


def test_steps_below_a_millisecond_are_refused():
    found = refusals_of(GOOD + spoil(PACED, "500", "2_000_000"))
    assert [it.rule for it in found] == ["simulation.fast"]


def test_steps_that_would_count_as_stuck_are_refused():
    found = refusals_of(GOOD + spoil(PACED, "500", "1"))
    assert "simulation.slow" in [it.rule for it in found]
    assert "within faults.deadlines.step (2m)" in "".join(map(str, found))


def test_counted_text_that_is_too_short_is_refused():
    with pytest.raises(SpecError, match=r"maxEpochs"):
        suppose(parse_run_file(GOOD + PACED), {"code": 200, "docs": 100_000}, "")


# --- a section that no launch reads ---


def test_section_may_change_between_launches():
    changes = compare_run_files(parse_run_file(GOOD), parse_run_file(GOOD + PACED))
    assert changes
    assert all(it.is_allowed and it.path.startswith("spec.simulation") for it in changes)


def test_section_changes_nothing_that_is_launched():
    plain, paced = parse_run_file(GOOD), parse_run_file(GOOD + PACED)
    for make in (make_policy, make_config, make_genesis):
        assert make(plain, "u", some_sources()) == make(paced, "u", some_sources())
