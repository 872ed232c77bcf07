"""One pass: observe, decide, write the intent, do it, write the outcome, show the status.

The ledger comes first: what no record announces is not done. Memory changes by folding records
only, so a controller that dies between any two port calls leaves nothing that its successor
cannot read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller.core.actions import DESTRUCTIVE, Action, Decision, key_of
from controller.core.decide import EFFECTS, GANG, PLAN, confirm, decide
from controller.core.fold import fold
from controller.core.memory import Memory
from controller.core.readings import Instant
from controller.core.recording import body_of
from controller.core.rules import Rule
from controller.core.snapshot import Snapshot
from controller.ports import EpochLost, LedgerRecord, PortError
from controller.runtime.act import execute
from controller.runtime.observe import Cadence, Observer, Ports

BuildStatus = Callable[[Memory, Snapshot], Mapping[str, object]]

UNWANTED = "no longer wanted by a fresh observation"


@dataclass(frozen=True)
class _Turn:
    """What a decision rested on."""

    rule: str
    memory: Memory
    snapshot: Snapshot


class Reconciler:
    """Runs passes over the ports; `resume` comes first."""

    def __init__(
        self,
        ports: Ports,
        build_status: BuildStatus,
        *,
        cadence: Cadence | None = None,
        status_every_ms: int = 1_000,
        rules: tuple[Rule, ...] = GANG,
        plan_rules: tuple[Rule, ...] = PLAN,
    ) -> None:
        """The rules are the core's; the simulator passes broken ones to see its checkers bark."""
        self._ports = ports
        self._build_status = build_status
        self._cadence = cadence or Cadence()
        self._status_every_ms = status_every_ms
        self._rules = rules
        self._plan_rules = plan_rules
        self._memory: Memory | None = None
        self._is_unsure = False
        self._observer: Observer | None = None
        self._status_at: Instant | None = None

    @property
    def memory(self) -> Memory:
        """What is remembered now."""
        assert self._memory is not None, "resume() comes first"
        return self._memory

    def resume(self) -> Memory:
        """Rebuild the memory from the ledger and return it."""
        memory: Memory | None = None
        for record in self._ports.ledger.records():
            memory = fold(memory, record)
        assert memory is not None, "the ledger holds no run"
        self._memory = memory
        self._is_unsure = False
        self._observer = Observer(self._ports, memory.epoch, self._cadence)
        return memory

    def pass_once(self) -> Decision:
        """Do one pass and return what was decided.

        Raises:
            EpochLost: another controller took over; this one must end.
            Unavailable: the ledger cannot be written, so nothing more was done.
        """
        if self._memory is None or self._is_unsure:
            self.resume()
        assert self._observer is not None
        snapshot = self._observer.observe(self.memory)
        decision = decide(snapshot, self.memory, self._rules, self._plan_rules)
        self._carry_out(decision, snapshot)
        self._show(snapshot, has_acted=bool(decision.actions))
        return decision

    def _carry_out(self, decision: Decision, snapshot: Snapshot) -> None:
        if not decision.actions:
            return
        turn = _Turn(decision.rule, self.memory, snapshot)
        intent = self._record("decision", body_of(decision, snapshot))
        for action in decision.actions:
            if isinstance(action, EFFECTS) and not self._act(action, intent, turn):
                break

    def _act(self, action: Action, intent: LedgerRecord, turn: _Turn) -> bool:
        """Do one action and record how it went; False: what follows it must wait."""
        assert self._observer is not None
        run_uid = turn.memory.policy.run_uid
        error = ""
        try:
            if isinstance(action, DESTRUCTIVE) and not self._is_still_wanted(action, turn):
                error = UNWANTED
            else:
                execute(self._ports, action, intent, turn.snapshot, run_uid=run_uid)
        except EpochLost:
            raise
        except PortError as problem:
            error = str(problem) or type(problem).__name__
        self._observer.forget()
        key = key_of(run_uid, action)
        self._record("outcome", {"key": key, "ok": not error, "error": error})
        return not error

    def _is_still_wanted(self, action: Action, turn: _Turn) -> bool:
        """Return whether a second, wholly fresh observation leads the rule to the same act."""
        assert self._observer is not None
        self._observer.forget()
        fresh = self._observer.observe(turn.memory)
        return confirm(turn.rule, action, fresh, turn.memory, self._rules)

    def _record(self, kind: str, body: Mapping[str, object]) -> LedgerRecord:
        # Until it is written it is unsure what the ledger holds; the next pass reads it then.
        self._is_unsure = True
        record = self._ports.ledger.append(kind, body, self._ports.clock.now())
        self._is_unsure = False
        self._memory = fold(self.memory, record)
        return record

    def _show(self, snapshot: Snapshot, *, has_acted: bool) -> None:
        """Write the status: when something was done, else at its own pace."""
        last, now = self._status_at, snapshot.now
        is_recent = (
            last is not None
            and last.boot_id == now.boot_id
            and now.mono_ms - last.mono_ms < self._status_every_ms
        )
        if is_recent and not has_acted:
            return
        self._status_at = now
        try:
            self._ports.status.write(self._build_status(self.memory, snapshot))
        except EpochLost:
            raise
        except PortError:
            return  # Nobody's training depends on the status.
