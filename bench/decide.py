"""How long a decision takes at 4 and 864 ranks, and how fast simulated days pass.

python -m bench.decide
"""

import os
import sys
import time
from collections.abc import Iterable
from statistics import quantiles

from contract.wire import Phase
from controller.core.actions import Evaluate
from controller.core.decide import decide
from controller.core.fold_plan import fold_plan_record
from controller.core.memory import Memory
from controller.core.pace import PaceView
from controller.core.readings import Instant
from controller.core.snapshot import (
    CheckpointView,
    ControlView,
    GangView,
    ProgressView,
    RankEnd,
    RankReading,
    RankTelemetry,
    RankView,
    Snapshot,
    StorageView,
    StoreView,
)
from controller.runtime.reconcile import Reconciler
from controller.simulate.agenda import FIRST_WALL_MS
from controller.simulate.chaos.campaign import DAY_MS, QUIET_WAKE_MS, live_quietly, new_random
from controller.simulate.chaos.life import build_status
from controller.simulate.scenario import mixed_plan, sim_plan, sim_policy, sim_terms
from controller.simulate.world import World

RANKS = (4, 864)
ROUNDS = 400
WARM_ROUNDS = 20
CHECKPOINTS = 65
"""Permanent checkpoints of the run the design was made for."""
QUIET_DAYS, QUIET_KILLS = 100, 100
LATER_MS = 1_000_000
STEPS, DONE, STEP_MS = 390_251, 60_000, 18_500
"""The run the design was made for, and a deadline that a shorter horizon meets."""
DEADLINE_DAYS = 70


def a_memory(ranks: int) -> Memory:
    """Return the memory of a run whose first gang is up."""
    world = World(policy=sim_policy(ranks=ranks), random=new_random(0))
    plan, ports = sim_plan(), world.ports()
    body = {"policy": world.policy.model_dump(mode="json"), "plan": plan.model_dump(mode="json")}
    ports.ledger.append("run", body, ports.clock.now())
    reconciler = Reconciler(ports, build_status)
    reconciler.resume()
    reconciler.pass_once()
    return reconciler.memory


def a_snapshot(memory: Memory, *, is_dying: bool) -> Snapshot:
    """Return a gang that trains, or one that a rank's end takes down."""
    ranks, sha = memory.policy.ranks, memory.plan.sha
    assert memory.attempt is not None
    launched = memory.attempt.launched_at
    end = RankEnd(code=137, wall_ms=0, step=None, detail="")
    views = [
        RankView(
            rank=rank,
            claimed=True,
            alive=not is_dying,
            stopped=False,
            has_stacks=False,
            end=end if is_dying else None,
        )
        for rank in range(ranks)
    ]
    value = RankTelemetry(
        attempt=1,
        step=50,
        phase=Phase.STEP,
        progress_age_ms=100,
        deadline_ms=120_000,
        plan_sha=sha,
        plan_pending=False,
        control_refused=None,
        checkpoint_failures=0,
        commit_age_ms=0,
    )
    return Snapshot(
        now=Instant(
            wall_ms=launched.wall_ms + LATER_MS,
            mono_ms=launched.mono_ms + LATER_MS,
            boot_id=launched.boot_id,
        ),
        epoch=1,
        gang=GangView(attempt=1, closed=False, ranks=views, remains=[]),
        telemetry=[RankReading(rank=rank, value=value) for rank in range(ranks)],
        progress=ProgressView(
            attempt=1,
            completed_steps=50,
            grown_age_ms=100,
            highest_step=50,
            replay_mismatch_step=None,
        ),
        store=a_store(sha),
        storage=StorageView(problem=None, free_bytes=10**12),
        intents=[],
        control=ControlView(epoch=1, seq=1, plan_sha=sha, drain=None),
    )


def a_store(sha: str) -> StoreView:
    """Return a store of verified checkpoints."""
    checkpoints = [
        CheckpointView(
            line="main",
            step=step,
            plan_sha=sha,
            manifest_sha256="a" * 64,
            verified=True,
            quarantined=None,
        )
        for step in range(CHECKPOINTS)
    ]
    return StoreView(checkpoints=checkpoints, ever_complete=True)


def a_late_run(ranks: int) -> tuple[Snapshot, Memory]:
    """Return a gang in the middle of the window of a run that will be late."""
    deadline_ms = FIRST_WALL_MS + DEADLINE_DAYS * DAY_MS
    terms = sim_terms(deadline_wall_ms=deadline_ms, mode="propose", evaluations=1)
    memory = a_memory(ranks)
    memory = memory.model_copy(
        update={
            "policy": memory.policy.model_copy(update={"terms": terms}),
            "chain": [mixed_plan(STEPS)],
        }
    )
    snapshot = a_snapshot(memory, is_dying=False)
    progress = snapshot.progress
    assert isinstance(progress, ProgressView)
    pace = PaceView(
        since_step=0,
        until_step=DONE,
        clean_steps=4_000,
        step_us=1_000 * STEP_MS,
        error_us=20_000,
        extra_us=20_000,
        trained_ms=DONE * STEP_MS,
        first_wall_ms=FIRST_WALL_MS,
        start_ms=1_800_000,
        changed_step=None,
        context_length=64,
        execution_sha="",
        outages=[],
    )
    update = {"completed_steps": DONE, "highest_step": DONE, "plan_sha": memory.plan.sha}
    progress = progress.model_copy(update={**update, "pace": pace})
    passed_ms = DONE * STEP_MS
    now = Instant(
        wall_ms=FIRST_WALL_MS + passed_ms, mono_ms=passed_ms, boot_id=snapshot.now.boot_id
    )
    return snapshot.model_copy(update={"progress": progress, "now": now}), memory


def time_plan(ranks: int) -> Iterable[str]:
    """Return the times of the passes in which the plan track evaluates, proposes and rests."""
    snapshot, memory = a_late_run(ranks)
    yield time_calls("a forecast", snapshot, memory)
    (evaluation,) = [it for it in decide(snapshot, memory).actions if isinstance(it, Evaluate)]
    memory = fold_plan_record(memory, evaluation, snapshot.now)
    yield time_calls("a proposal, its horizon found and proven", snapshot, memory)
    rested = memory.model_copy(update={"late": 0})
    yield time_calls("nothing to do for the plan", snapshot, rested)


def time_decide(ranks: int, *, is_dying: bool) -> str:
    """Return in words which rule answers, and p50 and p99 of decide()."""
    memory = a_memory(ranks)
    return time_calls("the gang alone", a_snapshot(memory, is_dying=is_dying), memory)


def time_calls(what: str, snapshot: Snapshot, memory: Memory) -> str:
    """Return p50 and p99 of decide(), in words."""
    ranks = memory.policy.ranks
    wall_ns: list[int] = []
    cpu_ns: list[int] = []
    rule = ""
    for _ in range(WARM_ROUNDS + ROUNDS):
        begin_ns, begin_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        rule = decide(snapshot, memory).rule
        cpu_ns.append(time.thread_time_ns() - begin_cpu_ns)
        wall_ns.append(time.perf_counter_ns() - begin_ns)
    wall = quantiles(wall_ns[WARM_ROUNDS:], n=100)
    cpu = quantiles(cpu_ns[WARM_ROUNDS:], n=100)
    return (
        f"decide() at {ranks} ranks, {CHECKPOINTS} checkpoints, {what} ({rule or 'no rule'}): "
        f"p50 {wall[49] / 1e6:.2f} ms, p99 {wall[98] / 1e6:.2f} ms "
        f"(of CPU time {cpu[49] / 1e6:.2f} and {cpu[98] / 1e6:.2f} ms)"
    )


def main() -> int:
    """Print the figures with their conditions."""
    load = os.getloadavg()[0]
    print(f"decisions: {ROUNDS} calls each, {os.cpu_count()} cores, load {load:.1f}")
    for ranks in RANKS:
        for is_dying in (False, True):
            print(f"  {time_decide(ranks, is_dying=is_dying)}")
        for text in time_plan(ranks):
            print(f"  {text}")
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    life = live_quietly(QUIET_DAYS, kills=QUIET_KILLS)
    days = life.world.agenda.now_ms / DAY_MS
    spent_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
    print(
        f"  simulation: {days / spent_s:.0f} days a second, {days / cpu_s:.0f} of CPU time "
        f"(aim >= 100; {days:.0f} days, {QUIET_KILLS} killed ranks, {life.passes} passes, one "
        f"each {QUIET_WAKE_MS // 60_000} min, one core)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
