"""`ctl suspend`, `resume`, `stop`: leave a wish, see to it that somebody hears it, wait."""

import getpass
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.orders import Wish
from controller.cli.peek import View, look
from controller.cli.wording import describe_line, list_of, members_of
from controller.core.launched import LaunchedRun
from controller.core.memory import Memory
from controller.core.snapshot import OwnerIntent
from controller.ports import Refused

POLL_S = 0.1
SAY_EVERY_S = 5.0
MAX_STARTS = 3
"""A controller may end, at rest, in the moment before it would have read the wish."""


def ask(runs_dir: Path, name: str, wish: Wish) -> int:
    """Leave the wish and wait until it is met; return the exit code.

    Raises:
        PortError: no such run, a copy, or its ledger is damaged.
        Refused: the wish cannot be met; nothing was written.
    """
    if wish.adopt_copy:
        deps.adopt_copy(runs_dir, name)
    run = deps.find_run(runs_dir, name)
    memory = deps.read_memory(run)
    if (answer := _answer_at_once(run, memory, wish)) is not None:
        output.tell(answer)
        return Code.DONE
    intent = _make_intent(run, memory, wish)
    if intent is not None:
        deps.drop_intent(run.directory, intent)
    is_met = _goal(run, wish, intent)
    if not look(run.directory).controller.is_alive:
        deps.start_controller(run.directory)
    if not wish.wait:
        output.tell(f"asked to {wish.verb}. Next: ctl status {name} --watch")
        return Code.DONE
    return _wait(run.directory, is_met)


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
        user=getpass.getuser(),
        wall_ms=time.time_ns() // 1_000_000,
    )


def _line_of(run: LaunchedRun, memory: Memory | None, step: int) -> str:
    """Return the line that holds the checkpoint at `step`, the newest line first.

    Raises:
        Refused: none does; the message lists those that are there.
    """
    lines = [line.name for line in reversed(memory.plan.lineage)] if memory else []
    folder = run.directory / "checkpoints"
    for line in lines:
        if (folder / line / str(step)).is_dir():
            return line
    steps = sorted(
        int(path.name)
        for line in lines
        for path in (folder / line).glob("*")
        if path.name.isdigit()
    )
    there = ", ".join(map(str, steps)) or "none"
    raise Refused(
        f"--from is {step}; it must be the step of a checkpoint that is there ({there})."
        f" Next: ctl resume {run.name} --from {steps[-1] if steps else 'STEP'}"
    )


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
        if (refusal := _refusal(view, asked_ms)) is not None:
            raise Refused(refusal)
        is_fresh = int(str(view.status["at"])) >= asked_ms
        is_moved = wish.from_step is None or _line(view) != line_before
        return is_fresh and is_moved and view.state in UNDER_WAY

    return is_met


UNDER_WAY = frozenset({"starting", "training", "completed"})
OPPOSITE = {"stop": "suspended", "suspend": "stopped"}
"""What a run may have rested in before it heard the wish."""


def _line(view: View) -> object:
    return members_of(view.status or {}, "plan").get("line")


def _refusal(view: View, asked_ms: int) -> str | None:
    """Return why the controller refused the new line, None when it did not."""
    for note in list_of(view.status or {}, "notes"):
        if note["subject"] == "resume_from" and int(str(note["at"])) >= asked_ms:
            return str(note["text"])
    return None


def _wait(directory: Path, is_met: Callable[[View], bool]) -> int:
    starts, said_at = 0, time.monotonic()
    while True:
        view = look(directory)
        if is_met(view):
            output.tell(describe_line(view).strip())
            return Code.FAILED if view.state == "halted" else Code.DONE
        if not view.controller.is_alive:
            if starts == MAX_STARTS:
                raise Refused(f"the controller ends again and again. Next: ctl log {view.name}")
            starts += 1
            deps.start_controller(directory)
        if time.monotonic() - said_at >= SAY_EVERY_S:
            output.tell(describe_line(view).strip())
            said_at = time.monotonic()
        time.sleep(POLL_S)
