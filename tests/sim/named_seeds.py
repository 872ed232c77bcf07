"""Every defect that lives under faults found, as the life that shows it.

`undo` brings the defect back: the life must go wrong with it, so that it still tells something.
"""

from dataclasses import dataclass

from tests.sim.mutation import Edit


@dataclass(frozen=True)
class NamedSeed:
    """One defect."""

    name: str
    story: str
    life: str
    """Its name in the campaign: a seed, or SEED/FAULT/PHASE or SEED/FAULT/PHASE/FAULT."""
    phrase: str
    """Of the violation."""
    undo: Edit


NAMED_SEEDS = (
    NamedSeed(
        "killed-by-an-old-view",
        "The fleet was read from before the launch for half a minute: the attempt that trained"
        " counted as never started, was closed, and killed.",
        "0/stale_fleet/start",
        "the healthy attempt",
        Edit(
            "controller.core.ends:end_late_start",
            "if gang is None and attempt.launched:",
            "if False:",
        ),
    ),
    NamedSeed(
        "judged-twice",
        "The step log gave an old answer again: steps that had been evaluated were evaluated once"
        " more, and one bad window counted twice.",
        "0/stale_progress/proposed",
        "two evaluations rest on the same steps",
        Edit(
            "controller.core.replan:is_due",
            " or pace.since_step < memory.evaluated_step",
            "",
        ),
    ),
    NamedSeed(
        "stuck-by-an-old-log",
        "The step log of the attempt before was answered again: it counted as the second signal"
        " that this attempt stands still.",
        "0/hang_unwatched/step/stale_progress",
        "is called stuck on one signal",
        Edit(
            "controller.core.stuck:log_still_ms",
            'return Unknown(unknown="an old answer: the step log of another attempt")',
            "return elapsed_ms(attempt.launched_at, snapshot.now)",
        ),
    ),
    NamedSeed(
        "plan-decided-and-not-written",
        "A full disk kept an approved revision from being written while the run halted: the"
        " simulated owner looked for its file, and the life broke off (the simulator's defect).",
        "0/refuse/approved/fill_disk",
        "PlanError",
        Edit(
            "controller.simulate.habitat:Habitat.has_nothing_left",
            "has_intact(memory.chain)",
            "has_intact(self.chain(memory.plan.sha))",
        ),
    ),
)
