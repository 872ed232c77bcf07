"""A summary in words."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import cast

from controller.cli.output import align
from controller.cli.wording import describe_incident

Members = Mapping[str, object]


def describe_summary(summary: Members) -> str:
    """Return the summary of a run in a dozen lines."""
    return "\n".join(align(list(_rows(summary))))


def _rows(summary: Members) -> Iterator[tuple[str, ...]]:
    yield "steps", f"{summary['steps']:,}, {summary['tokens_trained']:,} tokens"
    yield "attempts", f"{summary['attempts']}"
    for incident in cast("list[Members]", summary["incidents"]):
        tokens = _show(incident["cost_tokens"], 0)
        cost = f"cost {_show(incident['cost_seconds'])} s and {tokens} tokens"
        yield "incident", f"{describe_incident(incident)}; {cost}"
    replayed, compared = summary["replayed_steps"], summary["replay_compared_steps"]
    found = summary["replay_max_loss_difference"]
    difference = "-" if found is None else found
    yield "replay", f"{replayed} steps, {compared} compared, largest loss difference {difference}"
    yield from _plan_rows(summary)
    yield (
        "validation",
        f"{_show(summary['validation_loss'])} nats; bigrams {_show(summary['bigram_entropy'])},"
        f" unigrams {_show(summary['unigram_entropy'])},"
        f" without routed experts {_show(summary['no_routed_experts_loss'])}",
    )
    drops = cast("Members", summary["drops_percent"])
    yield (
        "drops",
        f"early {_show(drops['early_sender'])}% at senders, {_show(drops['early_receiver'])}% at"
        f" receivers; late {_show(drops['late'])}% in all",
    )
    rate, mfu = _show(summary["tokens_per_second"], 0), _show(summary["mfu_percent"], 1)
    yield "speed", f"{rate} tokens/s, MFU {mfu}%"
    yield "ledger", "verified" if summary["ledger_verified"] else "DAMAGED: see ctl log --verify"
    seconds = cast("dict[str, float]", summary["phase_seconds"])
    spent = ", ".join(f"{name} {value:.1f}" for name, value in seconds.items() if value >= MIN_S)
    yield "time", f"{_show(summary['wall_seconds'], 1)} s: {spent}"


def _plan_rows(summary: Members) -> Iterator[tuple[str, str]]:
    """Yield what became of horizon, deadline, proposals and learning rate."""
    for proposal in cast("list[Members]", summary.get("proposals", [])):
        yield "proposal", _describe_proposal(proposal)
    for revision in cast("list[Members]", summary.get("revisions", [])):
        yield "revision", _describe_revision(revision, summary)
    for move in cast("list[Members]", summary.get("deadline_moves", [])):
        yield "deadline moved", _describe_move(move)
    if summary.get("deadline") is not None:
        yield "deadline", _describe_deadline(summary)
    if summary.get("counterfactual_finish") is not None:
        yield "unshortened", _describe_counterfactual(summary)
    yield "learning rate", _describe_rate(summary)


def _describe_proposal(proposal: Members) -> str:
    floor = " at the floor" if proposal["is_floor"] else ""
    by = "" if proposal["by"] is None else f" by {proposal['by']}"
    text = f"{proposal['id']} ({proposal['kind']}{floor}): {proposal['outcome']}{by}"
    return text if proposal["reason"] is None else f"{text}: {proposal['reason']}"


def _describe_revision(revision: Members, summary: Members) -> str:
    what = f"{revision['kind']} from step {revision['fork_step']:,}"
    if revision["kind"] == "horizon":
        what += f": {summary['original_steps']:,} steps at launch, {revision['total_steps']:,} now"
    who = f"proposed by {revision['author']}, approved by {revision['approved_by']}"
    step = revision["adopted_at_step"]
    when = "not adopted" if step is None else f"adopted at step {step:,}"
    return f"{what}; {who}, {when}{_describe_continuity(revision, summary)}"


def _describe_continuity(revision: Members, summary: Members) -> str:
    """Say whether the very gang that ran before the fork went on after it."""
    before, after = revision.get("attempt_before_fork"), revision.get("attempt_after_fork")
    if after is None:
        return ""
    number = revision["compilations_after_fork"]
    compiled = f"{number or 'no'} {'compilation' if number == 1 else 'compilations'} after the fork"
    where = f"in attempt {after} of {summary['attempts']}"
    if not revision["adopted_without_restart"]:
        came = "" if before in (None, after) else f", attempt {before} ran until the fork"
        return f" {where}, by a restart{came}; {compiled}"
    pids = cast("list[int] | None", revision["pids"])
    same = f"same processes {', '.join(map(str, pids))}" if pids else "same processes"
    return f" {where} without a restart ({same}); {compiled}"


def _describe_move(move: Members) -> str:
    by = "with the run file" if move["by"] is None else f"by {move['by']}"
    dates = f"to {_show_instant(move['deadline'])}, due {_show_instant(move['due'])}"
    return f"{_show_instant(move['at'])} {by} {dates}"


def _describe_deadline(summary: Members) -> str:
    text = f"{_show_instant(summary['deadline'])}, due {_show_instant(summary['due'])}"
    if summary["finished_at"] is not None:
        verdict = "on time" if summary["on_time"] else "TOO LATE"
        last = summary.get("last_step_ended_at")
        text += "" if last is None else f"; last step ended {_show_instant(last)}"
        text += f"; finished {_show_instant(summary['finished_at'])}: {verdict}"
    if summary["p_on_time_before"] is not None:
        before, after = (_percent(summary[f"p_on_time_{when}"]) for when in ("before", "after"))
        text += f"; P(on time) as proposed: {before} without, {after} with the revision"
    return text


def _describe_counterfactual(summary: Members) -> str:
    text = f"would have finished {_show_instant(summary['counterfactual_finish'])}"
    miss = summary["counterfactual_miss_seconds"]
    if not isinstance(miss, int | float):
        return text
    side = "after" if miss > 0 else "before"
    percent = summary["counterfactual_miss_percent"]
    share = f" ({abs(percent):,.1f}% of the run)" if isinstance(percent, int | float) else ""
    return f"{text}, {abs(miss):,.1f} s {side} the deadline{share}"


def _describe_rate(summary: Members) -> str:
    digits = 2 if summary.get("final_lr_exact") else 7
    exactly = "exactly " if summary.get("final_lr_exact") else ""
    text = f"ended at {exactly}{_show(summary['final_lr_fraction'], digits)} of its peak"
    compared = cast("Members", summary.get("lr_matches_plan", {}))
    if compared:
        checked, wrong = compared["steps_checked"], compared["mismatches"]
        text += f"; {checked:,} steps as logged against the plan, {wrong:,} differ"
    if summary.get("lr_at_fork_before") is not None:
        text += f"; {_describe_fork(summary)}"
    return text


def _describe_fork(summary: Members) -> str:
    """Show that the rate goes on where it was: the fork step gets what the parent would give."""
    before, after = (
        f"step {summary[f'lr_at_fork_{when}_step']:,} {_rate(summary[f'lr_at_fork_{when}'])}"
        for when in ("before", "after")
    )
    parent = summary["lr_at_fork_parent"]
    if parent is None:
        return f"{before}, fork {after}"
    is_same = parent == summary["lr_at_fork_after"]
    same = "the same" if is_same else _rate(parent)
    return f"{before}, fork {after} (by the plan before it: {same})"


def _rate(value: object) -> str:
    return f"{float.fromhex(value):.7g}" if isinstance(value, str) else "-"


def _show_instant(text: object) -> str:
    """Return an instant in the user's zone, with the zone."""
    if not isinstance(text, str):
        return "-"
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def _percent(value: object) -> str:
    if not isinstance(value, int | float):
        return "-"
    # What rounds to an end of the scale is rarely there.
    return {0.0: "<0.1%", 1.0: ">99.9%"}.get(float(value), f"{100 * value:.1f}%")


MIN_S = 0.05


def _show(value: object, digits: int = 3) -> str:
    return f"{value:,.{digits}f}" if isinstance(value, int | float) else "-"
