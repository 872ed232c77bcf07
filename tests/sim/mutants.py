"""Mutants of the core, each with what it breaks and what catches it.

python -m tests.sim.mutants    writes the tables of docs/chaos.md
"""

import sys
from collections.abc import Callable
from functools import partial

from controller.simulate.chaos.pairs import live_blow, read_blow
from tests.sim import bugs, page, plan_bugs
from tests.sim.directed import (
    DEAF,
    HARD_MS,
    KILLS,
    MANY_KILLS,
    gang_violations,
    plan_violations,
    seed_violations,
)
from tests.sim.mutation import ByLife, ByTest, Edit, Mutant

CORE = "controller.core"


def edit(module: str, function: str, old: str, new: str) -> Edit:
    """Return an edit of a function of the core."""
    return Edit(f"{CORE}.{module}:{function}", old, new)


def blow(name: str) -> Callable[..., object]:
    """Return the violations of a life of the campaign, as a function."""
    return lambda **_: live_blow(read_blow(name)).violations


def unit(module: str, test: str, *values: object) -> ByTest:
    """Return a test of the core as a catcher."""
    return ByTest(f"core.test_{module}:test_{test}", values)


def life(phrase: str, violations: Callable[..., object], *values: object, **more: object) -> ByLife:
    """Return a checker in a directed life as a catcher."""
    is_plain = not values and not more
    return ByLife(phrase, violations if is_plain else partial(violations, *values, **more))


GANG_MUTANTS = [
    Mutant(
        "no-wait",
        "a gang starts over ranks of the last one",
        life("starts while an older one lives", seed_violations),
        changes={"rules": bugs.NO_WAIT},
    ),
    Mutant(
        "no-wait-at-launch",
        "a launch does not wait for foreign ranks",
        unit("launching", "old_ranks_keep_a_new_gang_from_starting"),
        edit("launching", "launch", "if foreign_ranks(snapshot, memory):", "if False:"),
    ),
    Mutant(
        "unknown-is-dead",
        "a fleet that cannot be read counts as gone",
        life("although gang is unknown", gang_violations, [(400_000, "blind_fleet")]),
        changes={"rules": bugs.UNKNOWN_IS_DEAD},
    ),
    Mutant(
        "unknown-as-zero",
        "progress that cannot be read is charged as none",
        unit("budget", "unreadable_progress_is_charged_to_the_window_only"),
        edit(
            "ends",
            "end_record",
            "not isinstance(progress, Unknown) and not isinstance(store, Unknown)",
            "True",
        ),
    ),
    Mutant(
        "needs-nothing",
        "rules are asked without the fields that they rest on",
        unit("decide", "rule_without_one_of_its_fields_is_not_asked"),
        edit("decide", "walk", "if not unknown.isdisjoint(rule.needs):", "if False:"),
    ),
    Mutant(
        "one-signal",
        "a rank's own word is enough to call it stuck",
        life("on one signal", gang_violations, [(400_000, "lie")]),
        changes={"rules": bugs.ONE_SIGNAL},
    ),
    Mutant(
        "either-signal",
        "the larger of two ages decides, not the smaller",
        life("the healthy attempt", gang_violations, [(400_000, "lie")]),
        edit("stuck", "find_suspects", "is_late = min(", "is_late = max("),
    ),
    Mutant(
        "kill-without-fence",
        "stuck ranks are killed before their attempt is closed",
        unit("ends", "gang_past_its_deadlines_on_both_signals_is_ended"),
        edit("stuck", "end_stuck", "[close, kill]", "[kill]"),
    ),
    Mutant(
        "old-view-ends-start",
        "a view from before the launch ends the launch",
        unit("ends", "gang_is_not_ended_by_a_view_older_than_its_start", False),
        edit("ends", "end_late_start", "if gang is None and attempt.launched:", "if False:"),
    ),
    Mutant(
        "claims-alone",
        "ranks that answer count as never started",
        unit("ends", "gang_is_not_ended_by_a_view_older_than_its_start", True),
        edit("ends", "count_started", " or view.rank in answering", ""),
    ),
    Mutant(
        "no-second-look",
        "a destructive act rests on the first observation alone",
        ByTest(
            "runtime.test_reconcile:test_destructive_act_is_left_undone_when_a_fresh_look_disagrees"
        ),
        Edit(
            "controller.runtime.reconcile:Reconciler._act",
            "isinstance(action, DESTRUCTIVE) and",
            "False and",
        ),
    ),
    Mutant(
        "stale-epoch",
        "a former controller's epoch is accepted",
        life(
            "a former controller acted",
            gang_violations,
            [(301_000, "kill_worker"), (301_001, "second_controller")],
        ),
        changes={"wrap": bugs.ignore_epochs},
    ),
    Mutant(
        "stale-document",
        "a former controller's control document is left for the new gang",
        unit("launching", "control_document_of_a_former_controller_is_published_anew_at_a_launch"),
        edit("launching", "shows", "(view.epoch, view.plan_sha", "(snapshot.epoch, view.plan_sha"),
    ),
    Mutant(
        "act-without-intent",
        "an act comes before its record",
        life("without an intent in the ledger", gang_violations, KILLS[:1]),
        changes={"wrap": bugs.act_unannounced},
    ),
    Mutant(
        "short-memory",
        "a successor does not read the newest records",
        life(
            "memory is not what a rebuild gives",
            gang_violations,
            [(301_000, "kill_worker"), (450_000, "second_controller"), (600_000, "kill_worker")],
        ),
        changes={"wrap": bugs.remember_too_little},
    ),
    Mutant(
        "intent-twice",
        "a wish of the owner that is known is recorded again",
        unit("owner", "wish_is_recorded_before_anything_else_and_once"),
        edit("owner", "record_intents", "if i.nonce not in memory.known_nonces", "if True"),
    ),
    Mutant(
        "wrong-root",
        "the last end is blamed, not the first",
        unit("classify", "earliest_own_end_wins_however_ranks_are_numbered"),
        edit("classify", "earliest", "first_ms = min(", "first_ms = max("),
    ),
    Mutant(
        "root-of-a-stall",
        "a rank that left its stacks is blamed for the stall",
        unit("classify", "frozen_rank_is_the_root_of_a_stall"),
        edit("classify", "judge_stall", "if not view.has_stacks and", "if view.has_stacks or"),
    ),
    Mutant(
        "own-kill-is-root",
        "a rank that the controller killed is blamed",
        unit("classify", "own_kill_is_never_a_root"),
        edit("classify", "is_ours", "if view.rank not in end.killed_by_us:", "if True:"),
    ),
    Mutant(
        "drain-is-incident",
        "an end that was asked for is charged",
        unit("owner", "restart_launches_again_at_once_and_is_no_incident"),
        edit("fold", "_fold_end", "if verdict.is_planned:", "if False:"),
    ),
    Mutant(
        "done-unverified",
        "the run is done without a verified last checkpoint",
        unit(
            "classify",
            "exit_zero_counts_only_at_the_horizon_with_a_verified_checkpoint",
            100,
            90,
            False,
        ),
        edit("classify", "judge_done", "if end.verified_step == total and", "if True and"),
    ),
    Mutant(
        "no-budget",
        "nothing halts a run that gets nowhere",
        life("incidents without progress", seed_violations),
        changes={"rules": bugs.NO_BUDGET},
    ),
    Mutant(
        "uncharged",
        "incidents are not charged to the window",
        life("in the window", gang_violations, MANY_KILLS),
        edit("fold", "_charge", "[*memory.incidents, incident]", "memory.incidents"),
    ),
    Mutant(
        "never-reset",
        "a newer verified checkpoint resets nothing",
        unit(
            "budget",
            "progress_between_incidents_keeps_the_run_going_until_the_window_is_full",
        ),
        edit(
            "fold",
            "_charge",
            "step is not None and (verified is None or step > verified)",
            "False",
        ),
    ),
    Mutant(
        "unverified-counts",
        "an unverified checkpoint resets the budget",
        life("incidents without progress", gang_violations, KILLS, reads_back=False),
        changes={"rules": bugs.UNVERIFIED_COUNTS},
    ),
    Mutant(
        "retry-for-ever",
        "a code that no restart cures is restarted",
        unit("budget", "code_that_no_restart_cures_halts_at_once", 2),
        edit("budget", "find_never", "newest.code not in NEVER_RETRY", "True"),
    ),
    Mutant(
        "delay-stays",
        "the delay before a restart does not grow",
        unit("budget", "delay_doubles_is_bounded_and_jitters_by_a_tenth_at_most"),
        edit("budget", "delay_of", "2 ** min(max(no_progress - 1, 0), 40)", "1"),
    ),
    Mutant(
        "from-nothing",
        "a gang may start at step 0 over old work",
        life("over old work", seed_violations),
        changes={"rules": bugs.FROM_NOTHING},
    ),
    Mutant(
        "restore-unverified",
        "any checkpoint is restored after a loss that is not finite",
        unit("launching", "verified_is_asked_for_once_after_a_loss_that_is_not_finite"),
        edit("launching", "choose_restore", "Restore.VERIFIED if", "Restore.REQUIRED if"),
    ),
    Mutant(
        "marks-good-ones",
        "an intact checkpoint is quarantined",
        life("the intact checkpoint", seed_violations),
        changes={"rules": bugs.MARKS_GOOD_ONES},
    ),
    Mutant(
        "never-again",
        "a run that failed is never launched again",
        life("did not finish", seed_violations),
        changes={"rules": bugs.NEVER_AGAIN},
    ),
]

PLAN_MUTANTS = [
    Mutant(
        "re-anchored",
        "the learning rate decays from the peak anew at the fork",
        life("the rate jumps at the fork", plan_violations),
        changes={"plan_rules": plan_bugs.RE_ANCHORED},
    ),
    Mutant(
        "skip-proofs",
        "an approved revision is published whatever its proofs say",
        unit("adoption", "execution_that_fits_no_longer_is_void_and_the_launch_goes_on"),
        edit("replan", "publish_proven", "list_failures(proofs)", "list_failures(proofs[:0])"),
    ),
    Mutant(
        "no-floor",
        "a horizon below the floor is proven",
        unit("proofs", "violation_is_refused_by_its_proof", "floor"),
        edit("proofs", "prove_floor", "return found >= least", "return found >= 0"),
    ),
    Mutant(
        "outside-the-window",
        "a horizon forks after the window",
        life("the fork is outside the window", plan_violations),
        changes={"plan_rules": plan_bugs.OUTSIDE_THE_WINDOW},
    ),
    Mutant(
        "fork-at-once",
        "a revision forks where the gang is, before it can hear of it",
        unit(
            "replan",
            "approved_proposal_is_published_ahead_of_the_gang_and_adopted_when_it_says_so",
        ),
        edit("proposing", "next_fork", " + lead_steps(memory, training)", ""),
    ),
    Mutant(
        "approves-nothing",
        "consent to a proposal that never was",
        life("approved a proposal that is not open", plan_violations),
        changes={"plan_rules": plan_bugs.APPROVES_NOTHING},
    ),
    Mutant(
        "approves-another",
        "the owner's word on another proposal counts for the open one",
        life(
            "approved what the owner did not name",
            plan_violations,
            [(230_000, "approve_wrong")],
            mode="propose",
        ),
        edit(
            "replan",
            "answer_owner",
            "proposal is None or proposal.id != ask.proposal",
            "proposal is None",
        ),
    ),
    Mutant(
        "approves-the-floor",
        "mode auto consents to a cut that misses its target",
        life("consents where only the owner may", plan_violations, deadline_ms=HARD_MS),
        changes={"plan_rules": plan_bugs.APPROVES_ALL},
    ),
    Mutant(
        "sticky",
        "a proposal stays open although its facts no longer hold",
        unit("replan", "recovery_makes_the_proposal_void_and_says_why"),
        edit("replan", "end_proposal", "find_void(memory, proposal)", "None"),
    ),
    Mutant(
        "never-expires",
        "a proposal that nobody answered can be approved for ever",
        unit("replan", "unanswered_proposal_expires"),
        edit("replan", "end_proposal", "find_expiry(snapshot, memory, proposal)", "None"),
    ),
    Mutant(
        "no-cool-down",
        "a shortening may follow the last one at once",
        unit("replan", "cool_down_counts_from_the_adoption"),
        edit("replan", "_explain_limits", "if left_ms > 0:", "if False:"),
    ),
    Mutant(
        "adopted-when-sent",
        "a revision counts as adopted before any rank runs it",
        life("an adoption that no gang knows of", plan_violations, DEAF[:1]),
        edit(
            "adoption",
            "record_adoption",
            " or progress.plan_sha != revision.plan_sha",
            "",
        ),
    ),
    Mutant(
        "two-at-once",
        "a second revision while one is not adopted",
        life("a second revision while one is not adopted", plan_violations),
        changes={"plan_rules": plan_bugs.TWO_AT_ONCE},
    ),
    Mutant(
        "missed-is-no-matter",
        "an attempt starts from a revision that the gang ran past",
        life("an attempt under a revision that was missed", plan_violations, DEAF),
        changes={
            "rules": plan_bugs.MISSED_IS_NO_MATTER[0],
            "plan_rules": plan_bugs.MISSED_IS_NO_MATTER[1],
        },
    ),
    Mutant(
        "forgets",
        "nothing is said of what becomes of a proposal",
        life("is lost", plan_violations, mode="propose"),
        changes={"plan_rules": plan_bugs.FORGETS},
    ),
    Mutant(
        "judged-twice",
        "an old answer of the step log is evaluated again",
        ByLife("two evaluations rest on the same steps", blow("0/stale_progress/proposed")),
        edit("replan", "is_due", " or pace.since_step < memory.evaluated_step", ""),
    ),
]

MUTANTS = [*GANG_MUTANTS, *PLAN_MUTANTS]


def main() -> int:
    """Write the page's tables anew."""
    page.PAGE.write_text(page.fill(page.PAGE.read_text(), MUTANTS))
    sys.stderr.write(f"wrote {page.PAGE.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
