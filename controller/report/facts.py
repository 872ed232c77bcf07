"""Where the run stands, in a sentence and in a table."""

from collections.abc import Iterator, Mapping
from typing import cast

from controller.core.summary import Evidence
from controller.report.markup import text
from controller.report.scene import known_until_s
from controller.report.wording import (
    MS_PER_S,
    NOTHING,
    show_chance,
    show_duration,
    show_instant,
    show_iso,
    show_number,
    show_percent,
    show_share,
)

Summary = Mapping[str, object]


def tell_standing(evidence: Evidence, summary: Summary) -> str:
    """Return one sentence: done, halted, resting or under way, and whether it is on time."""
    memory, name = evidence.memory, evidence.memory.policy.run_name
    steps, total = show_number(summary["steps"]), show_number(summary["final_steps"])
    if memory.rest == "completed":
        at = show_iso(summary["finished_at"])
        return f"{name} finished its {total} steps on {at}{_tell_verdict(evidence)}."
    if memory.halted is not None:
        return f"{name} halted after {steps} of {total} steps: {memory.halted}."
    if memory.rest is not None:
        return f"{name} is {memory.rest} after {steps} of {total} steps."
    at = show_instant(round(known_until_s(evidence) * MS_PER_S))
    return f"{name} had trained {steps} of {total} steps by {at}{_tell_outlook(evidence)}."


def _tell_verdict(evidence: Evidence) -> str:
    deadline_ms = evidence.memory.policy.terms.deadline_wall_ms
    completed = evidence.chronicle.completed_at
    if deadline_ms is None or completed is None:
        return ""
    spare_s = (deadline_ms - completed.wall_ms) / MS_PER_S
    side = "before" if spare_s >= 0 else "AFTER"
    return f", {show_duration(abs(spare_s))} {side} its deadline"


def _tell_outlook(evidence: Evidence) -> str:
    if not evidence.chronicle.evaluations:
        return "; no forecast was recorded yet"
    found = evidence.chronicle.evaluations[-1].facts.forecast
    chance = found.on_time_permille
    on_time = "" if chance is None else f", P(on time) {show_chance(chance)}"
    return f"; then forecast to finish on {show_instant(found.p50_wall_ms)}{on_time}"


def list_facts(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield labels and values; what does not apply to this run is left out."""
    yield "outcome", text(f"{summary['outcome']}: {summary['reason']}".removesuffix(": "))
    yield "steps", text(_tell_steps(summary))
    yield from _list_deadline(summary)
    yield from _list_passages(summary)
    yield "learning rate", text(_tell_rate(summary))
    yield from _list_fork_rates(summary)
    yield "loss", text(_tell_loss(summary))
    yield "speed", text(_tell_speed(summary))
    yield from _list_drops(cast("Summary", summary["drops_percent"]))
    replayed, compared = (
        show_number(summary[f"replay{it}"]) for it in ("ed_steps", "_compared_steps")
    )
    found = summary["replay_max_loss_difference"]
    difference = NOTHING if found is None else str(found)
    yield (
        "replay",
        text(
            f"{replayed} steps trained again, {compared} compared, largest loss difference "
            f"{difference}"
        ),
    )
    yield "attempts", text(f"{summary['attempts']}, {summary['planned_ends']} ended as asked")
    yield "ledger", _tell_ledger(summary)
    yield "wall time", text(show_duration(summary["wall_seconds"]))


def _list_passages(summary: Summary) -> Iterator[tuple[str, str]]:
    """Tell of each revision how the gang came over its fork."""
    for revision in cast("list[Summary]", summary["revisions"]):
        yield f"adoption, step {show_number(revision['fork_step'])}", _tell_passage(revision)


def _tell_passage(revision: Summary) -> str:
    after, count = revision["attempt_after_fork"], revision["compilations_after_fork"]
    if after is None:
        return text(f"{revision['kind']}: no step under it was logged")
    compiled = f"steps compiled for after the fork: {count}"
    if not revision["adopted_without_restart"]:
        return text(f"{revision['kind']}: by a restart, as attempt {after}; {compiled}")
    pids = ", ".join(map(str, cast("list[int] | None", revision["pids"]) or ()))
    same = f"attempt {after} before and after the fork"
    named = f", processes {pids} unchanged" if pids else ""
    whole = f'{text(revision["kind"])}: <span class="good">without a restart</span>'
    return f"{whole}, {text(f'{same}{named}; {compiled}')}"


def _list_fork_rates(summary: Summary) -> Iterator[tuple[str, str]]:
    before, after, parent = (
        _read_rate(summary[f"lr_at_fork_{it}"]) for it in ("before", "after", "parent")
    )
    if before is None or after is None:
        return
    first, second = (
        f"step {show_number(summary[f'lr_at_fork_{it}_step'])}" for it in ("before", "after")
    )
    told = f"{first}: {before}; {second}, the fork: {after}"
    if parent is not None:
        is_same = summary["lr_at_fork_parent"] == summary["lr_at_fork_after"]
        same = "the same to the bit" if is_same else parent
        told += f"; the plan before the revision would have given it {same}"
    yield "rate at the fork", text(told)


def _read_rate(value: object) -> str | None:
    return f"{float.fromhex(value):.7g}" if isinstance(value, str) else None


def _list_drops(drops: Summary) -> Iterator[tuple[str, str]]:
    if drops["late"] is None:
        return
    early = " and ".join(show_percent(drops[f"early_{it}"], 2) for it in ("sender", "receiver"))
    late = show_percent(drops["late"], 2)
    yield "drops", text(f"early {early} at senders and receivers; late {late} in all")


def _tell_steps(summary: Summary) -> str:
    steps, total = show_number(summary["steps"]), show_number(summary["final_steps"])
    original = show_number(summary["original_steps"])
    at_launch = "" if original == total else f" ({original} at launch)"
    return f"{steps} of {total}{at_launch}, {show_number(summary['tokens_trained'])} tokens"


def _list_deadline(summary: Summary) -> Iterator[tuple[str, str]]:
    if summary["deadline"] is None:
        return
    yield "deadline", text(f"{show_iso(summary['deadline'])}, due {show_iso(summary['due'])}")
    if summary["finished_at"] is not None:
        verdict = '<span class="good">on time</span>'
        if not summary["on_time"]:
            verdict = '<span class="bad">too late</span>'
        yield "last step ended", text(show_iso(summary["last_step_ended_at"]))
        yield "finished", f"{text(show_iso(summary['finished_at']))}, {verdict}"
    if summary["p_on_time_before"] is not None:
        before, after = (show_share(summary[f"p_on_time_{it}"]) for it in ("before", "after"))
        yield "P(on time)", text(f"{before} without, {after} with the revision, as proposed")
    if summary["counterfactual_finish"] is not None:
        yield "without it", text(_tell_counterfactual(summary))
    counted, late = summary["evaluations"], summary["late_evaluations"]
    yield "evaluations", text(f"{counted}, {late} of them late")


def _tell_counterfactual(summary: Summary) -> str:
    miss = cast("float", summary["counterfactual_miss_seconds"])
    side = "after" if miss > 0 else "before"
    share = show_percent(abs(cast("float", summary["counterfactual_miss_percent"] or 0.0)))
    finish = show_iso(summary["counterfactual_finish"])
    return f"{finish}, {show_duration(abs(miss))} {side} the deadline ({share} of the run)"


def _tell_rate(summary: Summary) -> str:
    compared = cast("Summary", summary["lr_matches_plan"])
    checked, wrong = (show_number(compared[it]) for it in ("steps_checked", "mismatches"))
    against = f"{checked} steps as logged against the plan, {wrong} differ"
    fraction = summary["final_lr_fraction"]
    if fraction is None:
        return against
    exactly = "exactly " if summary["final_lr_exact"] else ""
    share = show_percent(100 * cast("float", fraction), 1 if exactly else 6)
    return f"ended at {exactly}{share} of its peak; {against}"


def _tell_loss(summary: Summary) -> str:
    named = (("final_loss", "training"), ("validation_loss", "held out"),
             ("bigram_entropy", "bigrams"), ("unigram_entropy", "unigrams"))  # fmt: skip
    told = [
        f"{name} {show_number(summary[it], 3)}" for it, name in named if summary[it] is not None
    ]
    return f"{', '.join(told)} nats" if told else NOTHING


def _tell_speed(summary: Summary) -> str:
    rate = f"{show_number(summary['tokens_per_second'])} tokens/s"
    mfu = summary["mfu_percent"]
    return rate if mfu is None else f"{rate}, MFU {show_percent(mfu)}"


def _tell_ledger(summary: Summary) -> str:
    if summary["ledger_verified"]:
        return "chain and anchors hold"
    found = "; ".join(cast("list[str]", summary["ledger_findings"]))
    return f'<span class="bad">{text(f"DAMAGED: {found}")}</span>'
