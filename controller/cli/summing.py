"""A summary in words."""

from collections.abc import Iterator, Mapping
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
    yield "learning rate", f"ended at {_show(summary['final_lr_fraction'], 7)} of its peak"
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


MIN_S = 0.05


def _show(value: object, digits: int = 3) -> str:
    return f"{value:,.{digits}f}" if isinstance(value, int | float) else "-"
