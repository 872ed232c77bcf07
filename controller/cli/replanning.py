"""`ctl replan`: is the run on time, what is proposed, what would help; the owner's word on it."""

import re
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from contract.plan import Plan
from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.orders import ReplanOrder
from controller.cli.peek import View, look, read_summary
from controller.cli.people import name_user
from controller.cli.proposals import describe_differences, describe_report
from controller.cli.wording import (
    describe_finish,
    is_finished,
    is_late,
    list_of,
    members_of,
    show_chance,
    show_count,
    show_span,
)
from controller.core.declared.launched import LaunchedRun
from controller.core.declared.plan_files import find_alternative, read_execution, read_mixture
from controller.core.declared.problems import Problem, SpecError
from controller.core.memory import Memory
from controller.core.pace import PaceView
from controller.core.proofs import floor_steps
from controller.core.proposal import ID_CHARS, Change
from controller.core.readings import Instant
from controller.core.snapshot import OwnerIntent
from controller.core.telling.prospect import (
    Difference,
    Prospect,
    WhatIf,
    compare_plans,
    find_pair,
    is_behind,
    look_around,
)
from controller.core.telling.status_plan import describe_forecast, describe_open
from controller.ports import Unavailable

FORMS = ("table", "json")
PERCENT = 100
ID = re.compile(rf"[0-9a-f]{{{ID_CHARS}}}")
POLL_S = 0.1
JUDGE_EVERY_S = 1.0
MAX_STARTS = 3

Answer = TypeVar("Answer")
Report = dict[str, object]


def replan(order: ReplanOrder) -> int:
    """Show, compare, or leave a wish and wait for its outcome; return the exit code.

    Raises:
        SpecError: an option or a file is wrong; nothing was asked.
        PortError: no such run, a copy that is to be steered, a damaged ledger.
    """
    _check_order(order)
    if order.diff:
        return _show_differences(order)
    return _ask(order) if order.wishes else _show(order)


def _check_order(order: ReplanOrder) -> None:
    """Raise SpecError unless the options go together and their values are in bounds."""
    problems = list[Problem]()
    again = f"Next: ctl replan {order.name}"

    def refuse(field: str, value: object, bound: str) -> None:
        shown = None if value is None else str(value)
        problems.append(Problem("replan.option", field, shown, bound, again))

    if order.form not in FORMS:
        refuse("--output", order.form, f"it must be one of {', '.join(FORMS)}")
    if len(order.wishes) > 1:
        refuse(order.wishes[0], None, f"it goes with none of {', '.join(order.wishes[1:])}")
    if order.horizon is not None and not 1 <= order.horizon <= PERCENT:
        refuse("--horizon", order.horizon, "it must be 1 to 100, percent of the original horizon")
    for field, proposal in (("--approve", order.approve), ("--reject", order.reject)):
        if proposal is not None and not ID.fullmatch(proposal):
            bound = f"it must be the whole id of a proposal, {ID_CHARS} of 0-9 and a-f"
            refuse(field, f'"{proposal}"', bound)
    if problems:
        raise SpecError(problems)


# --- what there is ---


def _show(order: ReplanOrder) -> int:
    run = deps.read_run(order.runs_dir, order.name)
    memory, view = deps.read_memory(run), look(run.directory)
    if view.copy_of is not None:
        output.tell(f"{view.directory} is a copy of the run launched in {view.copy_of}")
    if memory is None:
        output.tell(f"nothing is recorded of {order.name} yet. Next: ctl status {order.name}")
        return Code.BLIND
    report = make_report(view, memory)
    if order.form == "json":
        output.emit_json(report)
    else:
        output.emit(describe_report(report))
    if view.is_blind:
        adopt = "" if view.copy_of is None else " --adopt-copy"
        again = f"Next: ctl resume {view.name}{adopt}"
        output.tell(f"nobody steers it: this is as of its last status. {again}")
    return code_of(view, memory)


def code_of(view: View, memory: Memory) -> Code:
    """Return the exit code that the run's plan stands for."""
    if view.is_blind:
        return Code.BLIND
    if memory.proposal is not None and memory.approval is None:
        return Code.WAITS
    if view.is_at_rest:
        return _code_of_rest(view)
    pace = read_pace(view)
    if pace is None:
        return Code.BLIND
    permille = members_of(view.status or {}, "forecast").get("on_time_permille")
    is_open = _look_around(view, memory, pace).is_window_open
    chance = permille if isinstance(permille, int) else None
    return Code.DIFFERS if is_behind(memory, chance, is_window_open=is_open) else Code.DONE


def _code_of_rest(view: View) -> Code:
    if view.state == "halted":
        return Code.FAILED
    is_missed = is_finished(view) and is_late(read_summary(view.directory))
    return Code.DIFFERS if is_missed else Code.DONE


def read_pace(view: View) -> PaceView | None:
    """Return the pace that the controller saw last, None where it knew none."""
    try:
        return PaceView.model_validate((view.status or {}).get("pace"))
    except ValidationError:
        return None


def _look_around(view: View, memory: Memory, pace: PaceView) -> Prospect:
    return look_around(memory, pace, _instant_of(view))


def _instant_of(view: View) -> Instant:
    at = int(str((view.status or {}).get("at", 0)))
    return Instant(wall_ms=at, mono_ms=0, boot_id="")


SHARED = (
    "forecast", "forecast_unknown", "pace_change", "evaluation", "approval", "revision",
    "revisions", "closed", "silence",
)  # fmt: skip
"""Keys of the report that stand in status.json as well."""


def make_report(view: View, memory: Memory) -> Report:
    """Return everything that `ctl replan` shows, as JSON-able values."""
    status, pace = view.status or {}, read_pace(view)
    pair = find_pair(memory, pace) if memory.proposal is not None else None
    prospect = _look_around(view, memory, pace) if pace is not None else None
    is_over = is_finished(view)
    return {
        "format": 1,
        "run": view.name,
        "state": view.state,
        "at": status.get("at"),
        "plan": _describe_plan(status, memory),
        "finish": describe_finish(read_summary(view.directory)) or None if is_over else None,
        **{name: status.get(name) for name in SHARED},
        "revision": _describe_revision(view),
        "proposal": describe_open(memory, pace, _instant_of(view)),
        "differences": list_differences(pair) if pair else None,
        "what_ifs": [_show_what_if(it) for it in prospect.what_ifs] if prospect else None,
        "horizon": _describe_target(prospect),
        "advice": _advise(memory, prospect) if prospect else None,
        "next": _list_next(view, memory),
    }


def _describe_revision(view: View) -> Report | None:
    """Return the published revision; how far it is holds only while somebody steers the run."""
    revision = members_of(view.status or {}, "revision")
    is_moving = view.controller.is_alive and not view.is_at_rest
    return {**revision, **({} if is_moving else {"steps_to_go": None})} if revision else None


def _describe_plan(status: Mapping[str, object], memory: Memory) -> Report:
    return {
        "sha": memory.plan.sha,
        "step": status.get("step"),
        "total_steps": memory.plan.total_steps,
        "original_steps": memory.genesis.total_steps,
        "floor_steps": floor_steps(memory.genesis, memory.policy.terms),
    }


def _show_what_if(found: WhatIf) -> Report:
    shown = {"percent": found.percent, "tokens_given_up": found.tokens_given_up}
    return {**shown, **describe_forecast(found.forecast)}


def _describe_target(prospect: Prospect | None) -> Report | None:
    if prospect is None or prospect.target is None:
        return None
    return {
        **_show_what_if(prospect.target),
        "meets_target": prospect.meets_target,
        "window_step": prospect.window_step,
        "is_window_open": prospect.is_window_open,
    }


def _advise(memory: Memory, prospect: Prospect) -> str | None:
    """Return which horizon would meet the deadline, in words; None without a deadline."""
    found, terms = prospect.target, memory.policy.terms
    if found is None:
        return None
    target, forecast = f"the target of {terms.target_percent}%", found.forecast
    chance = f"P(on time) {show_chance(forecast.on_time_permille)}"
    if found.tokens_given_up == 0 and prospect.meets_target:
        return f"the plan as it is meets {target}"
    closed = "" if prospect.is_window_open else f"; the window closed at {prospect.window_step:,}"
    size = f"{forecast.total_steps:,} steps ({found.percent}% of the original)"
    if prospect.meets_target:
        return f"{size} would meet {target}: {chance}{closed}"
    assert terms.due_wall_ms is not None
    late_ms = forecast.p50_wall_ms - terms.due_wall_ms
    median = f"{show_span(late_ms)} after due" if late_ms > 0 else "in time"
    return f"none allowed meets {target}; {size} has {chance}, its median {median}{closed}"


def _list_next(view: View, memory: Memory) -> list[str]:
    """Return what to type about the open proposal; a copy must become the run first."""
    proposal = memory.proposal
    if proposal is None or is_finished(view):
        return []
    if view.copy_of is not None:
        return [f"Next: ctl resume {view.name} --adopt-copy"]
    approve, reject = (
        f"ctl replan {view.name} --{verb} {proposal.id}" for verb in ("approve", "reject")
    )
    if memory.approval is None:
        return [f"Next: {approve} or {reject}"]
    if not view.is_at_rest:
        return []
    return [f"approved: it is carried out once the run trains again. {_advise_rest(view)}"]


# --- differences ---


def _show_differences(order: ReplanOrder) -> int:
    run = deps.read_run(order.runs_dir, order.name)
    memory = deps.read_memory(run)
    pair = find_pair(memory, read_pace(look(run.directory))) if memory is not None else None
    found = list_differences(pair) if pair else []
    if order.form == "json":
        shas = {"before": pair[0].sha, "after": pair[1].sha} if pair else {}
        output.emit_json({"run": order.name, **shas, "differences": found})
    elif pair is not None:
        output.emit(describe_differences(found))
    if pair is None:
        output.tell(f"nothing is proposed, and the plan of {order.name} was never revised")
    return Code.DIFFERS if any(it["is_change"] for it in found) else Code.DONE


def list_differences(pair: tuple[Plan, Plan]) -> list[Report]:
    """Return how two plans compare, as JSON-able values."""
    return [_show_difference(it) for it in compare_plans(*pair)]


def _show_difference(found: Difference) -> Report:
    return {
        "what": found.what,
        "before": found.before,
        "after": found.after,
        "is_change": found.is_change,
    }


# --- the owner's word ---


def _ask(order: ReplanOrder) -> int:
    run = deps.find_run(order.runs_dir, order.name)
    intent, view = _make_intent(order, run), look(run.directory)
    is_over = view.is_at_rest and not view.controller.is_alive
    if is_over and not _is_answered_at_rest(intent, view):
        return _conclude(order, run, _refuse_at_rest(view), Code.FAILED)
    deps.drop_intent(run.directory, intent)
    if not view.controller.is_alive:
        deps.start_controller(run.directory)
    if not order.wait:
        if order.form == "json":
            output.emit_json({"asked": intent.model_dump(mode="json", exclude_none=True)})
        output.tell(f"asked to {intent.verb}. Next: ctl replan {run.directory.name}")
        return Code.DONE
    find = _AnswerTo(run, intent.nonce).find
    answer = _wait_for(run, find, lambda it: _refuse_silence(intent, it))
    if not answer["accepted"]:
        text = _explain_refusal(deps.read_memory(run), intent, str(answer["text"]))
        return _conclude(order, run, text, Code.FAILED)
    if intent.verb == "propose":
        return _conclude_proposal(order, run, str(answer["text"]))
    if intent.verb == "reject":
        return _conclude(order, run, str(answer["text"]), Code.DONE)
    return _await_revision(order, run, str(answer["text"]))


def _conclude_proposal(order: ReplanOrder, run: LaunchedRun, text: str) -> int:
    """Show the proposal that the wish became."""
    memory, view = deps.read_memory(run), look(run.directory)
    assert memory is not None, "an answer without a record"
    code = code_of(view, memory)
    if order.form == "json":
        return _conclude(order, run, text, code)
    output.tell(text)
    output.emit(describe_report(make_report(view, memory)))
    return code


def _is_answered_at_rest(intent: OwnerIntent, view: View) -> bool:
    """Return whether a controller that finds the run at rest has an answer.

    Only a run that trains has a step for a proposal; consent needs none.
    """
    return intent.verb != "propose" and not is_finished(view)


def _refuse_silence(intent: OwnerIntent, view: View) -> None:
    """Raise Unavailable where no answer will come from a run at rest."""
    if not _is_answered_at_rest(intent, view):
        raise Unavailable(f"unanswered: {_refuse_at_rest(view)}")


def _refuse_at_rest(view: View) -> str:
    if is_finished(view):
        return f"{view.name} is finished; there is nothing to replan. Next: ctl log {view.name}"
    return f"{view.name} is {view.state}: it must train first. {_advise_rest(view)}"


def _advise_rest(view: View) -> str:
    """Return what makes a run train again that is at rest and not finished."""
    first = f"ctl log {view.name}, then: " if view.state == "halted" else ""
    return f"Next: {first}ctl resume {view.name}"


def _explain_refusal(memory: Memory | None, intent: OwnerIntent, text: str) -> str:
    """Return why a word on a proposal came too late, where it is known what became of that one."""
    known = memory.closed if memory is not None else []
    closed = next((it for it in known if it.id == intent.proposal), None)
    if closed is None:
        return text
    by = f" by {closed.by}" if closed.by else ""
    return f"proposal {closed.id} is not open: it was {closed.outcome}{by} ({closed.reason})"


def _make_intent(order: ReplanOrder, run: LaunchedRun) -> OwnerIntent:
    proposal = order.approve or order.reject
    return OwnerIntent(
        nonce=secrets.token_hex(8),
        verb="approve" if order.approve else "reject" if order.reject else "propose",
        proposal=proposal,
        change=None if proposal else _make_change(order, run),
        user=name_user(),
        wall_ms=time.time_ns() // 1_000_000,
    )


def _make_change(order: ReplanOrder, run: LaunchedRun) -> Change:
    """Return what the owner wants; raises SpecError for a file that is wrong."""
    if order.horizon is not None:
        steps = -(-order.horizon * run.run_file.spec.total_steps // PERCENT)
        return Change(kind="horizon", total_steps=steps)
    if order.mixture is not None and order.mixture.startswith("@"):
        again = f"Next: ctl replan {run.directory.name}"
        return find_alternative(run.run_file.spec, order.mixture.removeprefix("@"), again)
    field, path, read = "--execution", order.execution, read_execution
    if order.mixture is not None:
        field, path, read = "--mixture", Path(order.mixture), read_mixture
    assert path is not None
    again = f"Edit {path}, then: ctl replan {run.directory.name} {field} {path}"
    text = deps.read_given_text(path, field, f"Next: ctl replan {run.directory.name}")
    return read(text, run.text.decode(), str(path), again)


# --- waiting ---


def _wait_for(
    run: LaunchedRun,
    find: Callable[[View], Answer | None],
    find_at_rest: Callable[[View], Answer | None],
) -> Answer:
    """Return what `find` finds in the status sooner or later, or `find_at_rest` in the end.

    Where both find nothing at rest, another controller is started: one that was about to end did
    not hear the wish.

    Raises:
        Unavailable: it will not come any more: `find_at_rest` says so, or no controller lives long.
    """
    starts, was_over = 0, False
    while True:
        view = look(run.directory)
        if (found := find(view)) is not None:
            return found
        if view.controller.is_alive:
            was_over = False
        elif view.is_at_rest and not was_over:
            was_over = True  # A last look: the status is written before the lock is given back.
        else:
            if view.is_at_rest and (found := find_at_rest(view)) is not None:
                return found
            if starts == MAX_STARTS:
                text = f"the controller ends again and again. Next: ctl log {view.name}"
                raise Unavailable(text)
            starts += 1
            deps.start_controller(run.directory)
        time.sleep(POLL_S)


class _AnswerTo:
    """Looks for the answer to a wish, and now and then whether the wish went under."""

    def __init__(self, run: LaunchedRun, nonce: str) -> None:
        self._run, self._nonce = run, nonce
        self._judged_at = time.monotonic()

    def find(self, view: View) -> Mapping[str, object] | None:
        """Return the controller's answer, None before it."""
        for answer in list_of(view.status or {}, "answers"):
            if answer["nonce"] == self._nonce:
                return answer
        if time.monotonic() - self._judged_at < JUDGE_EVERY_S:
            return None
        self._judged_at = time.monotonic()
        memory = deps.read_memory(self._run)
        return find_lost_answer(memory, self._nonce) if memory is not None else None


def find_lost_answer(memory: Memory, nonce: str) -> Mapping[str, object] | None:
    """Return the answer to a wish that was heard and does not wait any more, as the ledger has it.

    A wish without an answer went under with the line that it was about.
    """
    for answer in memory.answers:
        if answer.nonce == nonce:
            return answer.model_dump(mode="json")
    if nonce not in memory.known_nonces or nonce in (ask.nonce for ask in memory.asks):
        return None
    return {"nonce": nonce, "accepted": False, "text": "a new line began; ask again"}


def _await_revision(order: ReplanOrder, run: LaunchedRun, text: str) -> int:
    """Wait until the approved proposal is carried out or void."""
    assert order.approve is not None
    memory = deps.read_memory(run)
    open_one = memory.proposal if memory else None
    view = look(run.directory)
    if open_one is not None and open_one.change.kind == "execution" and not view.is_at_rest:
        again = f"Next: ctl suspend {order.name}, then: ctl resume {order.name}"
        after = f"it takes effect when the gang restarts. {again}"
        return _conclude(order, run, f"{text}; {after}", Code.DONE)
    proposal = order.approve
    told, code = _wait_for(
        run, lambda it: _tell_outcome(it, proposal, text), lambda it: _tell_rest(it, text)
    )
    return _conclude(order, run, told, code)


def _tell_outcome(view: View, proposal: str, text: str) -> tuple[str, Code] | None:
    found = find_outcome(view, proposal)
    if found is None:
        return None
    revision, failure = found
    if revision is None:
        return failure, Code.FAILED
    fork, total = (show_count(revision.get(name)) for name in ("fork_step", "total_steps"))
    words = f"revision {str(revision['sha'])[:12]} takes effect at step {fork}; {total} steps"
    return f"{text}; {words}", Code.DONE


def _tell_rest(view: View, text: str) -> tuple[str, Code]:
    """Return what comes of an approval that a run at rest did not carry out."""
    if is_finished(view):
        late = f"{view.name} finished before it was carried out. Next: ctl log {view.name}"
        return f"{text}, but {late}", Code.FAILED
    then = f"{view.name} is {view.state}: it is carried out once the run trains again"
    return f"{text}; {then}. {_advise_rest(view)}", Code.DONE


def find_outcome(view: View, proposal: str) -> tuple[Mapping[str, object] | None, str] | None:
    """Return the revision that carries the proposal out, or why there will be none."""
    status = view.status or {}
    published = [members_of(status, "revision"), *list_of(status, "revisions")]
    for revision in published:
        if revision.get("proposal") == proposal:
            return revision, ""
    for closed in list_of(status, "closed"):
        if closed["id"] == proposal and closed["outcome"] != "approved":
            return None, f"proposal {proposal} is {closed['outcome']}: {closed['reason']}"
    return None


def _conclude(order: ReplanOrder, run: LaunchedRun, text: str, code: Code) -> int:
    """Say what became of the wish; with JSON, as data beside what there is now."""
    memory = deps.read_memory(run)
    is_accepted = code != Code.FAILED
    if order.form == "json" and memory is not None:
        report = make_report(look(run.directory), memory)
        output.emit_json({"accepted": is_accepted, "answer": text, **report})
        return code
    told = text.replace("; it fails", "\n  it fails").replace(": it fails", ":\n  it fails")
    advice = "" if is_accepted or "Next:" in told else f". Next: ctl replan {run.directory.name}"
    output.tell(f"{'' if is_accepted else 'refused: '}{told}{advice}")
    return code
