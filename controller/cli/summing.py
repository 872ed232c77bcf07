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
    """Say whether the newest horizon was adopted by the very gang that goes on."""
    attempt = summary["attempts_at_adoption"]
    if revision["kind"] != "horizon" or revision["fork_step"] != summary["fork_step"]:
        return ""
    return "" if attempt is None else f" in attempt {attempt} of {summary['attempts']}"


def _describe_deadline(summary: Members) -> str:
    text = f"{_show_instant(summary['deadline'])}, due {_show_instant(summary['due'])}"
    if summary["finished_at"] is not None:
        verdict = "on time" if summary["on_time"] else "TOO LATE"
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
    share = _show(summary["counterfactual_miss_percent"], 1)
    return f"{text}, {abs(miss):,.1f} s {side} the deadline ({share}% of the run)"


def _describe_rate(summary: Members) -> str:
    digits = 2 if summary.get("final_lr_exact") else 7
    exactly = "exactly " if summary.get("final_lr_exact") else ""
    text = f"ended at {exactly}{_show(summary['final_lr_fraction'], digits)} of its peak"
    compared = cast("Members", summary.get("lr_matches_plan", {}))
    if compared:
        checked, wrong = compared["steps_checked"], compared["mismatches"]
        text += f"; {checked:,} steps as logged against the plan, {wrong:,} differ"
    if summary.get("lr_at_fork_before") is not None:
        before, after = (_rate(summary[f"lr_at_fork_{when}"]) for when in ("before", "after"))
        text += f"; before the fork {before}, after it {after}"
    return text


def _rate(value: object) -> str:
    return f"{float.fromhex(value):.7g}" if isinstance(value, str) else "-"


def _show_instant(text: object) -> str:
    """Return an instant in the user's zone, with the zone."""
    if not isinstance(text, str):
        return "-"
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def _percent(value: object) -> str:
    return f"{100 * value:.1f}%" if isinstance(value, int | float) else "-"


MIN_S = 0.05


def _show(value: object, digits: int = 3) -> str:
    return f"{value:,.{digits}f}" if isinstance(value, int | float) else "-"
