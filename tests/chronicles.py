"""A run that was killed, fell behind and was shortened: its ledger and its step log, by hand.

second   0  attempt 1 is launched; steps of 1 s from 6 on
        47  rank 1 is killed after step 40
        50  attempt 2 goes on from step 30; from step 60 on a step takes 2 s
       126  the second late evaluation in a row; a horizon of 320 steps is proposed
       127  approved, published with fork 90; adopted at step 91
       606  the last step, 319; completed at 610; the deadline is 640, due 630
"""

from dataclasses import dataclass, replace

from contract.exits import Exit
from contract.plan import Plan
from contract.wire import Restore
from controller.core.actions import (
    Approve,
    CloseProposal,
    Complete,
    Evaluate,
    LaunchGang,
    Propose,
    PublishPlan,
    RecordAdoption,
    RecordEnd,
    RecordIntent,
)
from controller.core.fold import fold
from controller.core.forecast import Forecast, Lag
from controller.core.memory import Memory
from controller.core.pace import PaceView
from controller.core.policy import Policy
from controller.core.proofs import Case, prove
from controller.core.proposal import Change, Facts, LossCost, Proposal, make_id
from controller.core.readings import Instant
from controller.core.revise import revise
from controller.core.snapshot import OwnerIntent
from controller.core.telling.account import make_account
from controller.core.telling.chronicle import read_chronicle
from controller.core.telling.history import AttemptHistory
from controller.core.telling.summary import Evidence
from controller.core.terms import Terms
from controller.simulate.book import Book
from controller.simulate.scenario import sim_plan, sim_policy
from tests.builders import a_rank, an_end
from tests.histories import attempt

LAUNCHED_S = 1_700_000_000
STEPS, SHORTER, FORK = 400, 320, 90
KILLED_S, AGAIN_S, SLOW_FROM = 47, 50, 60
PROPOSED_S, COMPLETED_S, DEADLINE_S, DUE_S = 126, 610, 640, 630
PLAN = sim_plan(STEPS)
TERMS = Terms(
    mode="propose",
    deadline_wall_ms=(LAUNCHED_S + DEADLINE_S) * 1_000,
    reserve_ms=(DEADLINE_S - DUE_S) * 1_000,
    evaluations=2,
    settle_ms=0,
    launched_wall_ms=LAUNCHED_S * 1_000,
    source_tokens={"text": 10**6},
)
CUT = Change(kind="horizon", total_steps=SHORTER)


def wall_ms(second: float) -> int:
    """Return the wall clock at a second of the run."""
    return round((LAUNCHED_S + second) * 1_000)


def instant(second: float) -> Instant:
    """Return a second of the run as an instant."""
    return Instant(wall_ms=wall_ms(second), mono_ms=round(second * 1_000), boot_id="b")


def ends_at(step: int) -> float:
    """Return the second at which a step of attempt 2 ended."""
    return 56 + step - 30 + max(0, step - SLOW_FROM + 1)


def a_forecast(second: float, step: int, step_s: float, total: int, chance: int) -> Forecast:
    """Return a forecast of plain multiplication, a tenth of it to either side."""
    work_ms = round((total - step) * step_s * 1_000)
    p50 = wall_ms(second) + work_ms
    return Forecast(
        at_wall_ms=wall_ms(second),
        step=step,
        total_steps=total,
        step_us=round(step_s * 1e6),
        work_ms=work_ms,
        lost_ms_mean=5_000,
        sigma_ms=work_ms // 12,
        p10_wall_ms=p50 - work_ms // 10,
        p50_wall_ms=p50,
        p90_wall_ms=p50 + work_ms // 10,
        due_wall_ms=TERMS.due_wall_ms,
        on_time_permille=chance,
    )


def a_pace(step: int, step_s: float) -> PaceView:
    """Return the pace at a step."""
    return PaceView(
        since_step=max(0, step - 20),
        until_step=step,
        clean_steps=20,
        step_us=round(step_s * 1e6),
        error_us=1_000,
        extra_us=0,
        trained_ms=step * 1_000,
        first_wall_ms=wall_ms(6),
        start_ms=6_000,
        changed_step=None,
        context_length=64,
        execution_sha="a" * 64,
        outages=[],
    )


def an_evaluation(
    second: float, step: int, step_s: float, chance: int, total: int = STEPS
) -> Evaluate:
    """Return an evaluation as the controller records it."""
    return Evaluate(
        reason=f"P(on time) {chance / 10:g}%",
        nonce=f"e{step}",
        pace=a_pace(step, step_s),
        forecast=a_forecast(second, step, step_s, total, chance),
        proposed=None,
        counts=True,
        is_late=chance < 100,
        is_last_call=False,
    )


def a_child(plan: Plan = PLAN) -> Plan:
    """Return the revision that shortens the run."""
    return revise(plan, CUT, FORK, author="controller", reason="late", midtrain_steps=0)


def a_proposal(*, second: float = PROPOSED_S, seq: int = 1, is_floor: bool = False) -> Proposal:
    """Return the proposal of the shorter horizon, proofs included."""
    case = Case(genesis=PLAN, parent=PLAN, child=a_child(), terms=TERMS)
    proposal = Proposal(
        id="",
        parent=PLAN.sha,
        change=CUT,
        fork_first=FORK,
        fork_last=100,
        author="controller",
        wish=None,
        reason="2 late evaluations in a row, P(on time) 2.1%",
        is_floor=is_floor,
        is_last_call=False,
        facts=Facts(
            before=a_forecast(second, 80, 2.0, STEPS, 21),
            after=a_forecast(second, 80, 2.0, SHORTER, 912),
            lag=Lag(lost_ms=21_000, slow_ms=18_000),
            due_wall_ms=TERMS.due_wall_ms,
            tokens_given_up=(STEPS - SHORTER) * PLAN.tokens_per_step,
            loss_cost=LossCost(low_micronats=7_000, high_micronats=84_000, assumption="a power"),
            shortfall_ms=0,
            rank_bytes=10**9,
            proofs=prove(case),
        ),
        at=instant(second),
    )
    return proposal.model_copy(update={"id": make_id(proposal, seq)})


class Scroll:
    """A ledger that is written by hand, and the memory of it."""

    def __init__(self, plan: Plan = PLAN, terms: Terms = TERMS):
        self.book = Book()
        self._ledger = self.book.open_epoch()
        policy: Policy = sim_policy(ranks=2).model_copy(update={"terms": terms})
        body = {"policy": policy.model_dump(mode="json"), "plan": plan.model_dump(mode="json")}
        self.memory: Memory = fold(None, self._ledger.append("run", body, instant(0)))
        self._take("epoch", {"pid": 1, "host": "here", "takeover": False}, 0)

    def _take(self, kind: str, body: dict, second: float) -> None:
        self.memory = fold(self.memory, self._ledger.append(kind, body, instant(second)))

    def decide(self, second: float, *actions) -> "Scroll":
        """Record a decision of these actions."""
        said = [action.model_dump(mode="json") for action in actions]
        self._take(
            "decision",
            {"rule": "by_hand", "reason": "so", "actions": said, "wake_in_ms": 0, "snapshot": {}},
            second,
        )
        return self

    def launch(self, second: float, number: int) -> "Scroll":
        """Launch an attempt."""
        order = LaunchGang(
            reason="go",
            nonce=f"l{number}",
            attempt=number,
            plan_sha=self.memory.plan.sha,
            restore=Restore.NONE,
            highest_step=0,
        )
        return self.decide(second, order)

    def kill(self, second: float, number: int, step: int) -> "Scroll":
        """Let rank 1 have been killed after a step."""
        end = an_end(Exit.KILLED).model_copy(update={"wall_ms": wall_ms(second)})
        gone = an_end(Exit.PEER_LOST).model_copy(update={"wall_ms": wall_ms(second + 1)})
        end_of = RecordEnd(
            reason="over",
            nonce=f"d{number}",
            attempt=number,
            ranks=[a_rank(0, alive=False, end=gone), a_rank(1, alive=False, end=end)],
            completed_steps=step + 1,
            progress_known=True,
            verified_step=30,
            killed_by_us=[],
        )
        return self.decide(second + 1.5, end_of)

    def propose(self, proposal: Proposal, second: float = PROPOSED_S) -> "Scroll":
        """Put the proposal up."""
        return self.decide(second, Propose(reason=proposal.reason, nonce="p", proposal=proposal))

    def approve(self, proposal: Proposal, second: float) -> "Scroll":
        """Consent to the proposal, as the owner."""
        said = Approve(reason="ada approves", nonce="a", proposal=proposal.id, by="ada")
        return self.decide(second, said)

    def close(self, proposal: Proposal, second: float, outcome: str, by: str) -> "Scroll":
        """End the proposal otherwise."""
        said = CloseProposal(
            reason="another day", nonce="c", proposal=proposal.id, outcome=outcome, by=by
        )
        return self.decide(second, said)

    def publish(self, proposal: Proposal, second: float) -> "Scroll":
        """Publish the revision that the proposal asks for."""
        child = a_child(self.memory.plan)
        said = PublishPlan(reason="as approved", nonce="b", plan=child, proposal=proposal.id)
        return self.decide(second, said)

    def move_deadline(self, second: float, deadline_s: float, by: str = "ada") -> "Scroll":
        """Let the owner move the deadline to another second of the run."""
        terms = self.memory.policy.terms.model_copy(
            update={"deadline_wall_ms": wall_ms(deadline_s)}
        )
        wish = OwnerIntent(
            nonce=f"m{second}", verb="amend", terms=terms, user=by, wall_ms=wall_ms(second)
        )
        said = RecordIntent(reason=f"{by} asked to amend", nonce=wish.nonce, intent=wish)
        return self.decide(second, said)

    def begin_anew(self, second: float, terms: Terms) -> "Scroll":
        """Let another controller begin, with a run file that was edited meanwhile."""
        policy = self.memory.policy.model_copy(update={"terms": terms})
        body = {"policy": policy.model_dump(mode="json"), "changed": ["terms"]}
        self._take("policy", body, second)
        return self

    def open_line(self, second: float, plan: Plan) -> "Scroll":
        """Leave the line for another."""
        return self.decide(second, PublishPlan(reason="another line", nonce="n", plan=plan))

    def adopt(self, second: float, step: int) -> "Scroll":
        """Let the gang run it."""
        sha = self.memory.plan.sha
        return self.decide(second, RecordAdoption(reason="so", nonce="r", plan_sha=sha, step=step))

    def complete(self, second: float = COMPLETED_S) -> "Scroll":
        """Reach the horizon."""
        total = self.memory.plan.total_steps
        return self.decide(second, Complete(reason="done", nonce="z", step=total))


def until_proposed() -> tuple[Scroll, Proposal]:
    """Return the ledger up to the proposal."""
    proposal = a_proposal()
    scroll = Scroll().launch(0, 1).kill(KILLED_S, 1, 40).launch(AGAIN_S, 2)
    scroll.decide(76, an_evaluation(76, 50, 1.0, 870))
    scroll.decide(106, an_evaluation(106, 70, 1.5, 90))
    scroll.decide(PROPOSED_S, an_evaluation(PROPOSED_S, 80, 2.0, 21))
    return scroll.propose(proposal), proposal


def a_shortened_run() -> Scroll:
    """Return the whole story."""
    scroll, proposal = until_proposed()
    scroll.approve(proposal, 127).publish(proposal, 127.5).adopt(149, FORK + 1)
    for second, step in ((200, 117), (300, 167), (400, 217), (500, 267)):
        scroll.decide(second, an_evaluation(second, step, 2.0, 950, SHORTER))
    return scroll.complete()


def logs_of(scroll: Scroll, last: int = SHORTER) -> list[AttemptHistory]:
    """Return what the attempts logged up to step `last`, rates as the plan in force says."""
    first = attempt(1, LAUNCHED_S, range(41))
    second = attempt(2, LAUNCHED_S + AGAIN_S, range(30, last))
    return [_follow(first, scroll, lambda step: step + 6), _follow(second, scroll, ends_at)]


def _follow(history: AttemptHistory, scroll: Scroll, end_of) -> AttemptHistory:
    plan = scroll.memory.plan
    steps = [
        record.model_copy(
            update={
                "lr": {
                    group: value.hex()
                    for group, value in plan.values_at(record.step)["learning_rate"].items()
                },
                "plan_sha": plan.sha if record.step >= plan.effective else PLAN.sha,
                "wall_s": float(LAUNCHED_S + end_of(record.step)),
                "step_s": 2.0 if end_of is ends_at and record.step >= SLOW_FROM else 1.0,
            }
        )
        for record in history.steps
    ]
    return replace(history, steps=steps, ended_wall_s=steps[-1].wall_s)


@dataclass(frozen=True)
class Told:
    """A run as its report and its summary read it."""

    scroll: Scroll
    histories: list[AttemptHistory]

    @property
    def evidence(self) -> Evidence:
        """All of it."""
        records = self.scroll.book.records
        return Evidence(
            memory=self.scroll.memory,
            histories=self.histories,
            evals=[],
            entropies={},
            account=make_account(
                self.histories, LAUNCHED_S, records[-1].at.wall_ms / 1_000, rests=[]
            ),
            ledger_findings=[],
            peak_flops_per_second=None,
            chronicle=read_chronicle(records),
        )


def told(scroll: Scroll, last: int = SHORTER) -> Told:
    """Return the ledger with the logs that belong to it."""
    return Told(scroll, logs_of(scroll, last))
