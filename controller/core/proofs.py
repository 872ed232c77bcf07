"""What a revision must prove before anyone approves it, and again before it is published.

Each proof has a name and prints its value. Whoever adds one adds a plan that violates exactly it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from contract.data import cursors_at
from contract.plan import MixtureStage, Plan, check_child, check_plan
from contract.schedule import last_rise, round_binary32, shares_past, value_at
from controller.core.fit import buffer_bytes, find_misfits, memory_limit_bytes
from controller.core.proposal import Proof
from controller.core.revise import align_up
from controller.core.terms import Terms

PERCENT = 100


@dataclass(frozen=True)
class Room:
    """Memory as measured; None: not known, and then nothing that rests on it can be proven."""

    rank_bytes: int | None = None
    """Resident bytes of the largest rank under the parent."""
    machine_bytes: int | None = None
    ranks: int = 1
    """On one machine."""


@dataclass(frozen=True)
class Case:
    """What the proofs judge: a revision, what it follows, and what was declared."""

    genesis: Plan
    parent: Plan
    child: Plan
    terms: Terms
    room: Room = Room()

    @property
    def fork(self) -> int:
        """The effective step."""
        return self.child.effective

    @property
    def window_step(self) -> int:
        """The last step at which a horizon may fork: the window's share of the original tokens."""
        return last_window_step(self.genesis, self.terms)

    @property
    def floor_steps(self) -> int:
        """The fewest steps that the run may be shortened to."""
        return floor_steps(self.genesis, self.terms)


def last_window_step(genesis: Plan, terms: Terms) -> int:
    """Return the last step at which the tokens done are within the window, aligned to blocks."""
    step = terms.window_percent * genesis.total_steps // PERCENT
    return step // genesis.align_steps * genesis.align_steps


def floor_steps(genesis: Plan, terms: Terms) -> int:
    """Return the fewest steps that hold the floor's share of the original tokens."""
    return -(-terms.floor_percent * genesis.total_steps // PERCENT)


Found = tuple[bool, str, str]
"""Whether it holds, the value, the bound."""
Prove = Callable[[Case], Found]


# --- of every revision ---


def prove_chain(case: Case) -> Found:
    """The revision follows the plan in force, on its line."""
    parent, child = case.parent, case.child
    is_next = child.parent == parent.sha and child.effective >= parent.effective
    is_line = child.lineage == parent.lineage
    value = f"parent {str(child.parent)[:12]}, fork {child.effective:,}, line {child.line.name}"
    bound = f"parent {parent.sha[:12]}, fork at or after {parent.effective:,}, same line"
    return is_next and is_line, value, bound


def prove_sound(case: Case) -> Found:
    """The revision is a plan in itself, and every trainer would take it for a successor."""
    problems = [*check_plan(case.child), *check_child(case.parent, case.child)]
    value = "; ".join(problems) or "no objection"
    return not problems, value, "what trainers check by themselves"


def prove_past_knots(case: Case) -> Found:
    """Every anneal is the parent's at every step before the fork."""
    changed = [
        name
        for name in case.parent.anneals
        if name not in case.child.anneals
        or not shares_past(case.parent.knots_of(name), case.child.knots_of(name), case.fork)
    ]
    value = f"{', '.join(changed)} differ" if changed else f"{len(case.child.anneals)} identical"
    return not changed, value, f"anneals identical at every step below {case.fork:,}"


def prove_past_stages(case: Case) -> Found:
    """Mixture and context are the parent's before the fork."""
    changed = [
        what
        for what, left, right in (
            ("mixture", case.parent.mixture.stages, case.child.mixture.stages),
            ("context", case.parent.context, case.child.context),
        )
        if [s for s in left if s.start < case.fork] != [s for s in right if s.start < case.fork]
    ]
    value = f"{', '.join(changed)} differ" if changed else "mixture and context identical"
    return not changed, value, f"stages that began before {case.fork:,} never change"


def prove_pinned(case: Case) -> Found:
    """Peaks, optimizer (epsilon is in its digest), model, data and seed are the original ones."""
    members = ("peaks", "config_sha", "data_digest", "seed", "tokens_per_step", "run_uid")
    changed = [name for name in members if getattr(case.genesis, name) != getattr(case.child, name)]
    value = f"{', '.join(changed)} changed" if changed else "all as at launch"
    return not changed, value, "peak, epsilon, model, data and seed are pinned"


def prove_warm_up(case: Case) -> Found:
    """The warm-up is over at the fork."""
    end = last_rise(case.genesis.knots_of("learning_rate"))
    return case.fork >= end, f"fork at {case.fork:,}", f"at or after the warm-up's end ({end:,})"


def prove_alignment(case: Case) -> Found:
    """Fork and mixture boundaries are whole blocks and whole steps."""
    align = case.parent.align_steps
    starts = [stage.start for stage in case.child.mixture.stages]
    wrong = [step for step in [case.fork, *starts] if step % align]
    value = f"{wrong[0]:,} is not" if wrong else f"fork {case.fork:,}, stages {starts}"
    return not wrong, value, f"multiples of {align} steps"


def prove_data(case: Case) -> Found:
    """No source is read more often than allowed, and the tokens were provisioned."""
    child, terms = case.child, case.terms
    limit = terms.data_budget_tokens
    total = child.total_steps * child.tokens_per_step
    if limit is not None and total > limit:
        return False, f"{total:,} tokens", f"at most the data budget of {limit:,}"
    epochs = _count_epochs(child, terms)
    if epochs is None:
        why = "a source's size is unknown, or parts do not fill a block"
        return False, why, "epochs of every source can be counted"
    worst = max(epochs, key=lambda name: epochs[name], default="")
    most = epochs.get(worst, Fraction(0))
    value = f"{worst}: {float(most):.2f} epochs"
    return most <= terms.max_epochs, value, f"at most {terms.max_epochs} of any source"


def _count_epochs(plan: Plan, terms: Terms) -> dict[str, Fraction] | None:
    units = plan.mixture.block_tokens // plan.mixture.unit_tokens
    if any(sum(stage.parts.values()) != units for stage in plan.mixture.stages):
        return None
    cursors = cursors_at(plan, plan.total_steps)
    if any(terms.source_tokens.get(name, 0) < 1 for name in cursors):
        return None
    return {name: Fraction(read, terms.source_tokens[name]) for name, read in cursors.items()}


# --- of a horizon ---


def prove_continuous(case: Case) -> Found:
    """The learning rate at the fork is what it was: never re-anchored."""
    before = value_at(case.parent.knots_of("learning_rate"), case.fork)
    after = value_at(case.child.knots_of("learning_rate"), case.fork)
    value = f"{_show(before)} before, {_show(after)} after, of the peak"
    return before == after, value, "equal at the fork"


def prove_monotone(case: Case) -> Found:
    """After the warm-up the learning rate never rises."""
    knots = case.child.knots_of("learning_rate")
    rises = [
        right[0]
        for left, right in pairwise(knots)
        if right[1] > left[1] and right[0] > last_rise(case.genesis.knots_of("learning_rate"))
    ]
    value = f"rises up to step {rises[0]:,}" if rises else "never rises"
    return not rises, value, "not upward after the warm-up"


def prove_end(case: Case) -> Found:
    """The last executed step gets exactly the final fraction of the original peak."""
    wanted = case.genesis.knots_of("learning_rate")[-1][1]
    found = case.child.fraction_at("learning_rate", case.child.total_steps - 1)
    return found == wanted, _show(found), f"exactly {_show(wanted)} at step T'-1"


def prove_other_anneals(case: Case) -> Found:
    """Every other anneal is re-timed by the same rule: continuous, and to its own final value."""
    wrong = [
        name
        for name in case.genesis.anneals
        if name != "learning_rate" and not _is_retimed(case, name)
    ]
    value = f"{', '.join(wrong)} differ" if wrong else "same rule"
    return not wrong, value, "continuous at the fork, own final value at the last step"


def _is_retimed(case: Case, name: str) -> bool:
    before, after = case.parent.knots_of(name), case.child.knots_of(name)
    is_continuous = value_at(before, case.fork) == value_at(after, case.fork)
    return is_continuous and after[-1] == (case.child.total_steps - 1, before[-1][1])


def prove_window(case: Case) -> Found:
    """The tokens done at the fork lie within the window of the ORIGINAL budget."""
    done = case.fork * case.genesis.tokens_per_step
    limit = case.terms.window_percent * case.genesis.total_steps * case.genesis.tokens_per_step
    value = f"{done:,} tokens at the fork"
    bound = f"at most {case.terms.window_percent}% of the original horizon ({limit // PERCENT:,})"
    return done * PERCENT <= limit, value, bound


def prove_floor(case: Case) -> Found:
    """The horizon is not shortened below the floor."""
    found, least = case.child.total_steps, case.floor_steps
    return found >= least, f"{found:,} steps", f"at least {least:,} ({case.terms.floor_percent}%)"


def prove_change(case: Case) -> Found:
    """The change is worth a revision, and shortens."""
    cut = case.parent.total_steps - case.child.total_steps
    percent = Fraction(PERCENT * cut, case.genesis.total_steps)
    bound = f"at least {case.terms.min_change_percent}% of the original horizon"
    value = f"{float(percent):.2f}% fewer steps"
    return percent >= max(case.terms.min_change_percent, Fraction(1, 10**9)), value, bound


def prove_midtrain(case: Case) -> Found:
    """Each stage still ahead keeps its share of the horizon, the last one at least its floor."""
    stages, total, align = case.child.mixture.stages, case.child.total_steps, case.child.align_steps
    last = stages[-1]
    tokens = (total - last.start) * case.child.tokens_per_step
    value = f"last stage from {last.start:,}: {tokens:,} tokens"
    bound = "stages ahead at their percent, the last one no smaller than its floor"
    if last.start == 0:
        return True, "one stage", bound
    least = case.terms.midtrain_min_tokens
    first = align_up(case.fork, align)
    late = [
        stage.start
        for stage in stages
        if stage.start >= case.fork > 0 and stage.start > max(_share(stage, total, align), first)
    ]
    # The last stage of the parent is never dropped: it is what mid-training trains on.
    is_last_kept = last.parts == case.parent.mixture.stages[-1].parts
    return not late and tokens >= least and is_last_kept, value, bound


def _share(stage: MixtureStage, total: int, align: int) -> int:
    return stage.from_percent * total // PERCENT // align * align


# --- of a mixture, of an execution ---


def prove_same_schedule(case: Case) -> Found:
    """Horizon, anneals, context and execution are untouched."""
    names = ("total_steps", "anneals", "context", "lineage")
    changed = [name for name in names if getattr(case.parent, name) != getattr(case.child, name)]
    value = f"{', '.join(changed)} changed" if changed else "untouched"
    return not changed, value, "horizon, anneals and context stay"


def prove_parts(case: Case) -> Found:
    """Every block is whole, and names sources that exist."""
    units = case.child.mixture.block_tokens // case.child.mixture.unit_tokens
    strangers = sorted(set(case.child.sources) - set(case.terms.source_tokens))
    sums = {sum(stage.parts.values()) for stage in case.child.mixture.stages}
    value = f"unknown sources {strangers}" if strangers else f"parts sum to {sorted(sums)}"
    return not strangers and sums == {units}, value, f"known sources, parts sum to {units}"


def prove_same_data(case: Case) -> Found:
    """The mixture is untouched."""
    is_same = case.parent.mixture == case.child.mixture
    return is_same, "untouched" if is_same else "changed", "the mixture stays"


def prove_fit(case: Case) -> Found:
    """The execution fits the mesh, and the memory that was measured leaves room for it."""
    fit, room, bound = case.terms.fit, case.room, "a fit that can be checked, and holds"
    if fit is None:
        return False, "impossible: the trainer is not this distribution's", bound
    if misfits := find_misfits(fit, case.child, case.child.execution):
        return False, "; ".join(misfits), bound
    if room.rank_bytes is None or room.machine_bytes is None:
        return False, "impossible: the memory of the ranks is not measured", bound
    grown = buffer_bytes(fit, case.child, case.child.execution)
    grown -= buffer_bytes(fit, case.parent, case.parent.execution)
    needed, limit = room.rank_bytes + grown, memory_limit_bytes(room.machine_bytes, room.ranks)
    value = f"{needed:,} bytes a rank ({grown:+,} beside what was measured)"
    return needed <= limit, value, f"at most {limit:,} bytes a rank"


def prove_execution(case: Case) -> Found:
    """The execution is another one."""
    is_other = case.parent.execution != case.child.execution
    return is_other, "changed" if is_other else "the same", "another execution"


EVERY: tuple[Prove, ...] = (
    prove_chain, prove_past_knots, prove_past_stages, prove_pinned, prove_alignment, prove_data,
    prove_sound,
)  # fmt: skip
PROOFS: dict[str, tuple[Prove, ...]] = {
    "horizon": (
        *EVERY, prove_warm_up, prove_continuous, prove_monotone, prove_end, prove_other_anneals,
        prove_window, prove_floor, prove_change, prove_midtrain,
    ),
    "mixture": (*EVERY, prove_same_schedule, prove_parts),
    "execution": (
        prove_chain, prove_past_knots, prove_pinned, prove_same_schedule, prove_same_data,
        prove_execution, prove_fit, prove_sound,
    ),
}  # fmt: skip


def prove(case: Case) -> list[Proof]:
    """Return every proof of the revision, failed ones included."""
    found: list[Proof] = []
    for check in PROOFS[case.child.kind]:
        holds, value, bound = check(case)
        name = check.__name__.removeprefix("prove_")
        found.append(Proof(name=name, holds=holds, value=value, bound=bound))
    return found


def list_failures(proofs: Iterable[Proof]) -> Sequence[Proof]:
    """Return the proofs that fail."""
    return [proof for proof in proofs if not proof.holds]


def _show(fraction: Fraction) -> str:
    return f"{round_binary32(fraction):.6g}"
