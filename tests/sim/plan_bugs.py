"""Bugs planted on purpose in the plan track: each checker must bark at its own."""

from fractions import Fraction

from contract.schedule import format_fraction, value_at, warm_up_and_decay
from controller.core import replan
from controller.core.actions import Approve, Propose
from controller.core.adoption import await_revision, supersede_missed
from controller.core.decide import GANG, PLAN
from controller.core.memory import Memory
from controller.core.proofs import last_window_step
from controller.core.proposal import make_id
from controller.core.proposing import next_fork, revise_for
from controller.core.rules import Answer, Rule, rule
from controller.core.snapshot import Snapshot
from controller.core.training import find_training


def swap(name: str, broken: Rule) -> tuple[Rule, ...]:
    """Return the plan track's rules with one of them broken."""
    assert any(one.name == name for one in PLAN)
    return tuple(broken if one.name == name else one for one in PLAN)


def publish_unproven(snapshot, memory, fork, change=None):
    """Return what carries the approved proposal out, whatever the proofs say."""
    child = revise_for(memory, memory.plan, memory.proposal, fork)
    child = change(child) if change else child
    return Answer("go", replan.publish(memory, child, memory.proposal.id, "go"), 0)


def is_ready(memory):
    """Return whether an approved horizon waits to be carried out."""
    is_approved = memory.proposal is not None and memory.approval is not None
    return is_approved and memory.proposal.change.kind == "horizon"


# Decays from the peak anew, as a relaunch with a smaller number would.


def re_anchor(child):
    fork, total = child.effective, child.total_steps
    fresh = warm_up_and_decay(2, total, Fraction(1, 20))
    kept = [(step, value) for step, value in child.knots_of("learning_rate") if step < fork]
    last = (fork - 1, value_at(child.knots_of("learning_rate"), fork - 1))
    knots = [*kept, last, (fork, value_at(fresh, fork)), (total - 1, Fraction(1, 20))]
    texts = [(step, format_fraction(value)) for step, value in knots]
    return child.model_copy(update={"anneals": {"learning_rate": texts}})


@rule("progress")
def materialise_anew(snapshot: Snapshot, memory: Memory) -> Answer | None:
    training = find_training(snapshot, memory)
    if training is None or not is_ready(memory):
        return None
    return publish_unproven(snapshot, memory, next_fork(memory, training), re_anchor)


RE_ANCHORED = swap("materialise", materialise_anew)


# Consents to what is not there.


@rule()
def approve_nothing(_: Snapshot, memory: Memory) -> Answer | None:
    if memory.evaluation is None or memory.proposal is not None or memory.approval is not None:
        return None
    nonce = str(memory.seq)
    return Answer("yes", [Approve(reason="", nonce=nonce, proposal="f" * 12, by="owner")])


APPROVES_NOTHING = swap("approve_by_mode", approve_nothing)


# Consents to whatever is open.


@rule()
def approve_all(snapshot: Snapshot, memory: Memory) -> Answer | None:
    if memory.proposal is None or memory.approval is not None:
        return None
    act = Approve(
        reason="", nonce=str(memory.seq), proposal=memory.proposal.id, by="controller (mode auto)"
    )
    return Answer("yes", [act], 0)


APPROVES_ALL = swap("approve_by_mode", approve_all)


# Has no window.


@rule("progress")
def materialise_late(snapshot: Snapshot, memory: Memory) -> Answer | None:
    if find_training(snapshot, memory) is None or not is_ready(memory):
        return None
    fork = last_window_step(memory.genesis, memory.policy.terms) + 2
    return publish_unproven(snapshot, memory, fork)


OUTSIDE_THE_WINDOW = swap("materialise", materialise_late)


# Goes on proposing while the gang has not taken up the last revision.


@rule("progress")
def propose_again(snapshot: Snapshot, memory: Memory) -> Answer | None:
    revision = memory.revision
    if revision is None or memory.proposal is not None or revision.total_steps < 80:
        return replan.propose.ask(snapshot, memory)
    change = revision.proposal.change.model_copy(update={"total_steps": revision.total_steps - 4})
    again = revision.proposal.model_copy(
        update={"id": "", "parent": memory.plan.sha, "change": change}
    )
    again = again.model_copy(update={"id": make_id(again, memory.seq)})
    return Answer("again", [Propose(reason="", nonce=str(memory.seq), proposal=again)], 0)


@rule("progress")
def materialise_at_once(snapshot: Snapshot, memory: Memory) -> Answer | None:
    training = find_training(snapshot, memory)
    if training is None or not is_ready(memory):
        return None
    return publish_unproven(snapshot, memory, next_fork(memory, training))


TWO_AT_ONCE = tuple(
    {"propose": propose_again, "materialise": materialise_at_once}.get(one.name, one)
    for one in PLAN
)


# Starts from a revision that the gang ran past.

MISSED_IS_NO_MATTER = (
    tuple(one for one in GANG if one is not await_revision),
    tuple(one for one in PLAN if one is not supersede_missed),
)


# Says nothing of what becomes of a proposal.


@rule("progress")
def forget_proposal(snapshot: Snapshot, memory: Memory) -> Answer | None:
    answer = replan.propose.ask(snapshot, memory)
    if memory.proposal is None or memory.evaluation is None:
        return answer
    another = memory.proposal.model_copy(update={"id": make_id(memory.proposal, memory.seq)})
    return Answer("another", [Propose(reason="", nonce=str(memory.seq), proposal=another)], 5_000)


FORGETS = swap("propose", forget_proposal)
