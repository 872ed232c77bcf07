"""What a run came to, in a table of labels and values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from controller.report.blocks import Cell, Words
from controller.report.wording import (
    NOTHING,
    show_duration,
    show_iso,
    show_number,
    show_percent,
    show_share,
)

Summary = Mapping[str, object]
MAX_PASSAGES = 4
MAX_NAMED = 8
"""More processes than this are counted."""


def list_facts(summary: Summary) -> Iterator[tuple[str, Cell]]:
    """Yield labels and values; what does not apply to this run is left out."""
    yield "outcome", f"{summary['outcome']}: {summary['reason']}".removesuffix(": ")
    yield "steps", _tell_steps(summary)
    yield from _list_deadline(summary)
    yield from _list_passages(summary)
    yield "learning rate", _tell_rate(summary)
    yield from _list_fork_rates(summary)
    yield "loss", _tell_loss(summary)
    yield "speed", _tell_speed(summary)
    yield from _list_drops(cast("Summary", summary["drops_percent"]))
    replayed, compared = (
        show_number(summary[f"replay{it}"]) for it in ("ed_steps", "_compared_steps")
    )
    found = summary["replay_max_loss_difference"]
    difference = NOTHING if found is None else str(found)
    yield (
        "replay",
        f"{replayed} steps trained again on their own line, {compared} compared, "
        f"largest loss difference {difference}",
    )
    if summary["left_steps"]:
        yield "left", f"{show_number(summary['left_steps'])} steps on lines that the run left"
    yield "attempts", f"{summary['attempts']}, {summary['planned_ends']} ended as asked"
    yield "ledger", _tell_ledger(summary)
    yield "wall time", show_duration(summary["wall_seconds"])


def _list_passages(summary: Summary) -> Iterator[tuple[str, Cell]]:
    """Tell of each revision how the gang came over its fork; of many, how often it did so how."""
    revisions = cast("list[Summary]", summary["revisions"])
    if len(revisions) > MAX_PASSAGES:
        without = sum(bool(it["adopted_without_restart"]) for it in revisions)
        yield "adoptions", f"{len(revisions)} revisions, {without} of them without a restart"
        return
    for revision in revisions:
        yield f"adoption, step {show_number(revision['fork_step'])}", _tell_passage(revision)


def _tell_passage(revision: Summary) -> Cell:
    after, count = revision["attempt_after_fork"], revision["compilations_after_fork"]
    if after is None:
        return f"{revision['kind']}: no step under it was logged"
    compiled = f"steps compiled for after the fork: {count}"
    if not revision["adopted_without_restart"]:
        return f"{revision['kind']}: by a restart, as attempt {after}; {compiled}"
    pids = _list_some(cast("list[int] | None", revision["pids"]) or ())
    same = f"attempt {after} before and after the fork"
    named = f", processes {pids} unchanged" if pids else ""
    kind = Words("without a restart", "good")
    return [f"{revision['kind']}: ", kind, f", {same}{named}; {compiled}"]


def _list_some(pids: Sequence[int]) -> str:
    named = ", ".join(map(str, pids[:MAX_NAMED]))
    return f"{named} and {len(pids) - MAX_NAMED} more" if len(pids) > MAX_NAMED else named


def _list_fork_rates(summary: Summary) -> Iterator[tuple[str, Cell]]:
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
    yield "rate at the fork", told


def _read_rate(value: object) -> str | None:
    return f"{float.fromhex(value):.7g}" if isinstance(value, str) else None


def _list_drops(drops: Summary) -> Iterator[tuple[str, Cell]]:
    if drops["late"] is None:
        return
    early = " and ".join(show_percent(drops[f"early_{it}"], 2) for it in ("sender", "receiver"))
    late = show_percent(drops["late"], 2)
    yield "drops", f"early {early} at senders and receivers; late {late} in all"


def _tell_steps(summary: Summary) -> str:
    steps, total = show_number(summary["steps"]), show_number(summary["final_steps"])
    original = show_number(summary["original_steps"])
    at_launch = "" if original == total else f" ({original} at launch)"
    return f"{steps} of {total}{at_launch}, {show_number(summary['tokens_trained'])} tokens"


def _list_deadline(summary: Summary) -> Iterator[tuple[str, Cell]]:
    if summary["deadline"] is None:
        return
    yield "deadline", f"{show_iso(summary['deadline'])}, due {show_iso(summary['due'])}"
    if summary["finished_at"] is not None:
        verdict = Words("on time", "good") if summary["on_time"] else Words("too late", "bad")
        yield "last step ended", show_iso(summary["last_step_ended_at"])
        yield "finished", [f"{show_iso(summary['finished_at'])}, ", verdict]
    if summary["p_on_time_before"] is not None:
        before, after = (show_share(summary[f"p_on_time_{it}"]) for it in ("before", "after"))
        yield "P(on time)", f"{before} without, {after} with the revision, as proposed"
    if summary["counterfactual_finish"] is not None:
        yield "without it", _tell_counterfactual(summary)
    counted, late = summary["evaluations"], summary["late_evaluations"]
    yield "evaluations", f"{counted}, {late} of them late"


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


def _tell_ledger(summary: Summary) -> Cell:
    if summary["ledger_verified"]:
        return "chain and anchors hold"
    found = "; ".join(cast("list[str]", summary["ledger_findings"]))
    return Words(f"DAMAGED: {found}", "bad")
