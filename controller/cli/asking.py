"""`ctl suspend`, `resume`, `stop`: leave a wish, see to it that somebody hears it, wait."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.orders import Wish
from controller.cli.peek import View, look
from controller.cli.people import name_user
from controller.cli.wording import describe_line, list_of, members_of
from controller.core.declared.launched import LaunchedRun
from controller.core.lines import REFUSAL, list_sources
from controller.core.memory import Memory
from controller.core.snapshot import CheckpointView, OwnerIntent
from controller.ports import PortError, Refused, Unavailable

POLL_S = 0.1
SAY_EVERY_S = 5.0
MAX_STARTS = 3
"""A controller may end, at rest, in the moment before it would have read the wish."""


def ask(runs_dir: Path, name: str, wish: Wish) -> int:
    """Leave the wish and wait until it is met; return the exit code.

    Raises:
        PortError: no such run, a copy, or a damaged ledger where no controller lives to stop it.
        Refused: the wish cannot be met; nothing was written.
    """
    if wish.adopt_copy:
        deps.adopt_copy(runs_dir, name)
    run = deps.find_run(runs_dir, name)
    memory = _read_memory(run, wish)
    if (answer := _answer_at_once(run, memory, wish)) is not None:
        if memory is not None and memory.rest is not None:
            deps.settle(run, memory)
        output.tell(answer)
        return Code.DONE
    intent = _make_intent(run, memory, wish)
    if intent is not None:
        deps.drop_intent(run.directory, intent)
    errand = _Errand(run, wish, intent, _goal(run, wish, intent))
    if not look(run.directory).controller.is_alive:
        errand.start_controller()
    if not wish.wait:
        output.tell(f"asked to {wish.verb}. Next: ctl status {name} --watch")
        return Code.DONE
    return _wait(errand)


def _read_memory(run: LaunchedRun, wish: Wish) -> Memory | None:
    """Return what the ledger says; a damaged one keeps nobody from ending a gang that is steered.

    Raises:
        PortError: the ledger cannot be read, and a controller that lives is not enough.
    """
    try:
        return deps.read_memory(run)
    except PortError as error:
        if wish.verb == "resume" or not look(run.directory).controller.is_alive:
            raise
        output.tell(f"{error}\nThe controller that steers the run is asked all the same")
        return None


def _answer_at_once(run: LaunchedRun, memory: Memory | None, wish: Wish) -> str | None:
    """Return why there is nothing to do, None when there is."""
    if memory is None:
        return None
    if memory.rest == "completed" and wish.from_step is None:
        return f"{run.name} is finished; there is nothing to {wish.verb}"
    if RESTING[wish.verb] is not None and memory.rest == RESTING[wish.verb]:
        return f"{run.name} is {memory.rest} already"
    if wish.verb == "resume" and wish.from_step is None and look(run.directory).controller.is_alive:
        is_wanted = memory.wanted.state == "run" and memory.halted is None
        return f"{run.name} runs already" if is_wanted else None
    return None


RESTING = {"suspend": "suspended", "stop": "stopped", "resume": None}


def _make_intent(run: LaunchedRun, memory: Memory | None, wish: Wish) -> OwnerIntent | None:
    """Return the wish as the controller reads it; None when a controller is all that is missing."""
    is_resting = memory is not None and (
        memory.rest is not None or memory.halted is not None or memory.wanted.state != "run"
    )
    if wish.verb == "resume" and wish.from_step is None and not is_resting:
        return None  # an intent would also clear the counters of the restart budget
    line = None if wish.from_step is None else _line_of(run, memory, wish.from_step)
    return OwnerIntent(
        nonce=secrets.token_hex(8),
        verb=wish.verb if wish.from_step is None else "resume_from",
        line=line,
        step=wish.from_step,
        user=name_user(),
        wall_ms=time.time_ns() // 1_000_000,
    )


def _line_of(run: LaunchedRun, memory: Memory | None, step: int) -> str:
    """Return the line that holds the checkpoint at `step`, the newest line first.

    Raises:
        Refused: none does that a new line may start from; the message lists those that do.
    """
    sources = _list_sources(run, memory)
    lines = [found.line for found in sources if found.step == step]
    if lines:
        return lines[-1]
    there = ", ".join(str(at) for at in sorted({found.step for found in sources})) or "none"
    raise Refused(
        f"--from is {step}; it must be the step of a sound checkpoint of the current line's past"
        f" ({there}). Next: {_advise_source(run)}"
    )


def _list_sources(run: LaunchedRun, memory: Memory | None) -> list[CheckpointView]:
    """Return what the controller would take, oldest first."""
    return list_sources(memory, deps.list_checkpoints(run)) if memory else []


def _advise_source(run: LaunchedRun) -> str:
    """Return a command that works after a refused `--from`."""
    sources = _list_sources(run, deps.read_memory(run))
    if not sources:
        return f"ctl status {run.name}"
    return f"ctl resume {run.name} --from {sources[-1].step}"


def _goal(run: LaunchedRun, wish: Wish, intent: OwnerIntent | None) -> Callable[[View], bool]:
    asked_ms = intent.wall_ms if intent else time.time_ns() // 1_000_000
    line_before = _line(look(run.directory))

    def is_met(view: View) -> bool:
        if view.status is None:
            return False
        if wish.verb != "resume":
            # A drain may find the run at its horizon, or halted. The controller ends last: it
            # still writes the summary.
            is_over = view.is_at_rest and not view.controller.is_alive
            return is_over and view.state != OPPOSITE.get(wish.verb)
        if (refusal := find_refusal(view, intent)) is not None:
            raise Refused(f"{refusal}. Next: {_advise_source(run)}")
        is_fresh = int(str(view.status.get("at", 0))) >= asked_ms
        is_moved = wish.from_step is None or _line(view) != line_before
        return is_fresh and is_moved and view.state in UNDER_WAY

    return is_met


UNDER_WAY = frozenset({"starting", "training", "completed"})
OPPOSITE = {"stop": "suspended", "suspend": "stopped"}
"""What a run may have rested in before it heard the wish."""


def _line(view: View) -> object:
    return members_of(view.status or {}, "plan").get("line")


def find_refusal(view: View, intent: OwnerIntent | None) -> str | None:
    """Return why the controller refused this very new line, None when it did not."""
    if intent is None or intent.verb != "resume_from":
        return None
    begin = f"cannot resume from {intent.line}/{intent.step}:"
    for note in list_of(view.status or {}, "notes"):
        is_later = int(str(note["at"])) >= intent.wall_ms
        if note["subject"] == REFUSAL and is_later and str(note["text"]).startswith(begin):
            return str(note["text"])
    return None


# --- waiting ---


@dataclass
class _Errand:
    """A wish that somebody waits for."""

    run: LaunchedRun
    wish: Wish
    intent: OwnerIntent | None
    is_met: Callable[[View], bool]
    judged_at: float = 0.0

    def start_controller(self) -> None:
        """See to it that the wish is heard; a run that goes on has no summary yet."""
        if self.wish.verb == "resume":
            deps.remove_summary(self.run.directory)
        deps.start_controller(self.run.directory)

    def find_failure(self, view: View) -> str | None:
        """Return why the wish will not be met any more, None while it may.

        Only the ledger tells whether the wish was heard; it is not read in vain.
        """
        is_alive, wanted = view.controller.is_alive, (view.status or {}).get("wanted")
        if is_alive and wanted in (None, WANTED[self.wish.verb]):
            return None
        if is_alive and time.monotonic() - self.judged_at < JUDGE_EVERY_S:
            return None
        self.judged_at = time.monotonic()
        try:
            memory = deps.read_memory(self.run)
        except PortError:
            return None
        return find_failure(self.wish, self.intent, memory, is_alive=is_alive) if memory else None


def find_failure(
    wish: Wish, intent: OwnerIntent | None, memory: Memory, *, is_alive: bool
) -> str | None:
    """Return why a wish that was heard will not be met, None while it may or is."""
    if intent is not None and intent.nonce not in memory.known_nonces:
        return None
    if _is_line_undecided(intent, memory):
        return None
    name, verb = memory.policy.run_name, wish.verb
    if memory.wanted.resume_from is not None or memory.wanted.state != WANTED[verb]:
        return f"the wish to {verb} was withdrawn by a later one. Next: ctl log {name}"
    if verb == "resume" and memory.halted is not None and not is_alive:
        return f"{name} halted: {memory.halted}. Next: ctl log {name}"
    return None


def _is_line_undecided(intent: OwnerIntent | None, memory: Memory) -> bool:
    """Return whether the intent's new line is still to be published, or refused in the status."""
    if intent is None or intent.verb != "resume_from":
        return False
    if memory.wanted.resume_from is not None:
        return memory.wanted.resume_from[2] == intent.nonce
    return any(subject == REFUSAL for subject, _, _ in memory.notes)


WANTED = {"suspend": "suspended", "stop": "stopped", "resume": "run"}
JUDGE_EVERY_S = 1.0


def _wait(errand: _Errand) -> int:
    starts, said_at = 0, time.monotonic()
    while True:
        view = look(errand.run.directory)
        if (failure := errand.find_failure(view)) is not None:
            output.tell(failure)
            return Code.FAILED
        if errand.is_met(view):
            output.tell(describe_line(view).strip())
            return Code.FAILED if view.state == "halted" else Code.DONE
        if not view.controller.is_alive:
            if starts == MAX_STARTS:
                text = f"the controller ends again and again. Next: ctl log {view.name}"
                raise Unavailable(text)
            starts += 1
            errand.start_controller()
        if time.monotonic() - said_at >= SAY_EVERY_S:
            output.tell(describe_line(view).strip())
            said_at = time.monotonic()
        time.sleep(POLL_S)
