"""The public timeline under the controller's own rules: what they would have proposed, and when."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from contract.canonical import encode_canonical
from contract.model import Execution, flops_per_token, shape_of
from contract.plan import ROOT_LINE, ContextStage, Line, Mixture, MixtureStage, Plan
from contract.schedule import format_fraction, warm_up_and_decay
from contract.wire import RANK_PHASES
from controller.core.actions import Evaluate
from controller.core.decide import EFFECTS, decide
from controller.core.fold import fold
from controller.core.memory import Incident, Memory
from controller.core.pace import PaceView
from controller.core.policy import Budget, Policy
from controller.core.proposal import Proposal
from controller.core.readings import Instant
from controller.core.recording import body_of
from controller.core.snapshot import (
    ControlView,
    GangView,
    ProgressView,
    RankView,
    Snapshot,
    StorageView,
    StoreView,
)
from controller.core.terms import Terms
from controller.simulate.book import Book, BookLedger

DAY_MS = 86_400_000
STEPS, TOKENS_PER_STEP = 390_251, 46_137_344
BLOCK_TOKENS, UNIT_TOKENS = 201_326_592, 65_536
WARMUP_STEPS = 3_902
MIDTRAIN_PERCENT = 80
STAGES = ((0, 4_096), (50, 8_192), (95, 65_536))
"""Context: percent of the horizon and length. What follows 65K has no published start."""
DEVICES = 704
SAVE_STEPS = 195
"""An hour at 18.5 s a step."""
MAX_PASSES = 16
BOOT = "timeline"


@dataclass(frozen=True)
class Steered:
    """What the rules did with one replay and one deadline."""

    proposals: list[tuple[int, Proposal]]
    """(day, proposal), oldest first."""
    evaluations: list[tuple[int, Evaluate]]
    """(day, evaluation), oldest first."""


def hero_plan() -> Plan:
    """Return the genesis plan of the model case."""
    shape = shape_of("hero")
    units = BLOCK_TOKENS // UNIT_TOKENS
    align = 48  # steps that are whole blocks
    knots = warm_up_and_decay(WARMUP_STEPS, STEPS, Fraction(1, 20))
    return Plan(
        format=1,
        run_uid=BOOT,
        kind="genesis",
        parent=None,
        effective=0,
        supersedes=None,
        author="record",
        reason="launch",
        config_sha="0" * 64,
        data_digest="0" * 64,
        seed=0,
        tokens_per_step=TOKENS_PER_STEP,
        total_steps=STEPS,
        peaks={"learning_rate": {"matrix": "0.003291", "other": "0.000759"}},
        anneals={"learning_rate": [(step, format_fraction(value)) for step, value in knots]},
        mixture=Mixture(
            block_tokens=BLOCK_TOKENS,
            unit_tokens=UNIT_TOKENS,
            stages=[
                MixtureStage(start=0, from_percent=0, parts={"pre": units, "mid": 0}),
                MixtureStage(
                    start=MIDTRAIN_PERCENT * STEPS // 100 // align * align,
                    from_percent=MIDTRAIN_PERCENT,
                    parts={"pre": 0, "mid": units},
                ),
            ],
        ),
        context=[
            ContextStage(
                start=percent * STEPS // 100,
                from_percent=percent,
                length=length,
                flops_per_token=flops_per_token(shape, length),
            )
            for percent, length in STAGES
        ],
        execution=Execution(),
        lineage=[Line(name=ROOT_LINE, fork_step=0, offset_blocks=0)],
    )


def make_terms(due_day: int, settle_ms: int) -> Terms:
    """Return the contingency with its defaults, and a deadline so many days after the launch."""
    return Terms(
        mode="propose",
        deadline_wall_ms=due_day * DAY_MS,
        settle_ms=settle_ms,
        devices=DEVICES,
        save_every_steps=SAVE_STEPS,
        # 15T and 3.75T provisioned.
        source_tokens={"pre": 15 * 10**12, "mid": 3_750 * 10**9},
    )


class Helm:
    """The core's memory of one replay; a pass is a day."""

    def __init__(self, terms: Terms) -> None:
        plan = hero_plan()
        policy = Policy(
            run_uid=BOOT,
            run_name=BOOT,
            ranks=1,
            deadlines_ms=dict.fromkeys(RANK_PHASES, DAY_MS),
            margin_ms=0,
            cascade_ms=DAY_MS,
            start_ms=DAY_MS,
            heartbeat_ms=DAY_MS,
            budget=Budget(),
            terms=terms,
        )
        self._ledger: BookLedger = Book().open_epoch()
        body = {"policy": policy.model_dump(mode="json"), "plan": plan.model_dump(mode="json")}
        self.memory: Memory = fold(None, self._ledger.append("run", body, _instant(0)))
        self._plan = plan
        self._gang: GangView | None = None
        self._pass(_instant(0), None)
        rank = RankView(rank=0, claimed=True, alive=True, stopped=False, has_stacks=False, end=None)
        self._gang = GangView(attempt=1, closed=False, ranks=[rank], remains=[])

    def live_a_day(self, now_ms: int, pace: PaceView) -> Iterable[Evaluate]:
        """Pass until nothing more is done; yield what was evaluated."""
        self._note_incidents(pace)
        for _ in range(MAX_PASSES):
            before = self.memory.evaluated_at
            if not self._pass(_instant(now_ms), pace):
                return
            if self.memory.evaluated_at != before and self.memory.evaluation is not None:
                yield self.memory.evaluation
        raise AssertionError("the rules go on acting")

    def _note_incidents(self, pace: PaceView) -> None:
        """Let the memory hold an incident for each outage: the record tells no more of them."""
        incidents = [
            Incident(
                attempt=outage.attempt,
                cause="killed",
                code=None,
                root_rank=None,
                confidence="low",
                evidence="of the record",
                step=None,
                fingerprint="",
                verified_step=None,
                progress_known=True,
                at=_instant(0),
                ended_wall_ms=None,
            )
            for outage in pace.outages
        ]
        self.memory = self.memory.model_copy(update={"incidents": incidents})

    def _pass(self, now: Instant, pace: PaceView | None) -> bool:
        """Do one pass and return whether it did anything."""
        snapshot = self._look(now, pace)
        decision = decide(snapshot, self.memory)
        if not decision.actions:
            return False
        body = body_of(decision, snapshot)
        assert encode_canonical(body)
        self.memory = fold(self.memory, self._ledger.append("decision", body, now))
        assert not any(isinstance(it, EFFECTS) for it in decision.actions) or pace is None
        return True

    def _look(self, now: Instant, pace: PaceView | None) -> Snapshot:
        progress = None
        if pace is not None:
            progress = ProgressView(
                attempt=1,
                completed_steps=pace.until_step,
                grown_age_ms=0,
                highest_step=pace.until_step,
                replay_mismatch_step=None,
                plan_sha=self._plan.sha,
                pace=pace,
            )
        control = ControlView(epoch=1, seq=1, plan_sha=self._plan.sha, drain=None)
        return Snapshot(
            now=now,
            epoch=1,
            gang=self._gang,
            telemetry=[],
            progress=progress,
            store=StoreView(checkpoints=[], ever_complete=False),
            storage=StorageView(problem=None, free_bytes=1),
            intents=[],
            control=control if self._gang else None,
        )


def _instant(at_ms: int) -> Instant:
    return Instant(wall_ms=at_ms, mono_ms=at_ms, boot_id=BOOT)


def steer(days: Iterable[tuple[int, PaceView]], due_day: int, settle_ms: int) -> Steered:
    """Return what the rules do with (day, pace) of a replay against a deadline."""
    helm = Helm(make_terms(due_day, settle_ms))
    steered = Steered([], [])
    for day, pace in days:
        known = helm.memory.proposal
        steered.evaluations.extend(
            (day, evaluation) for evaluation in helm.live_a_day(day * DAY_MS, pace)
        )
        proposal = helm.memory.proposal
        if proposal is not None and proposal != known:
            steered.proposals.append((day, proposal))
    return steered
