"""The facts of a report as JSON-able values: what programs read instead of the page."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import cast

from contract.plan import Plan
from controller.core.telling.chronicle import Story
from controller.core.telling.outcome import show_instant
from controller.core.telling.summary import make_summary
from controller.report.dossier import Dossier
from controller.report.goodput import account_time, account_tokens
from controller.report.scene import origin_s
from controller.report.series import set_series
from controller.report.standing import tell_standing
from controller.report.trail import Deed, Entry, list_told

MS_PER_S = 1_000
Members = dict[str, object]


def make_facts(dossier: Dossier) -> Members:
    """Return everything; with `since` lists hold only what later entries of the ledger tell."""
    evidence, trail = dossier.evidence, dossier.trail
    read_at = evidence.chronicle.read_at
    summary = make_summary(evidence)
    return {
        "format": 1,
        "run": summary["run"],
        "standing": tell_standing(dossier),
        "as_of": {
            "entry": trail.seq,
            "at": show_instant(read_at.wall_ms if read_at else None),
            "since": dossier.since,
        },
        "launched_at": show_instant(round(origin_s(evidence) * MS_PER_S)),
        "declared": None if dossier.declared is None else asdict(dossier.declared),
        "summary": summary,
        "forecasts": _list_forecasts(dossier),
        "incidents": _list_incidents(dossier, summary),
        "proposals": [
            _describe_story(dossier, it)
            for it in evidence.chronicle.stories
            if dossier.is_new(max(trail.proposals.get(it.proposal.id, []), default=None))
        ],
        "plans": [_describe_plan(dossier, it) for it in evidence.memory.chain],
        "series": _list_series(dossier),
        "time": _describe_time(dossier),
        "tokens": _describe_tokens(dossier),
        "entries": [_describe_entry(it) for it in list_told(trail, (), dossier.since)],
    }


def _list_forecasts(dossier: Dossier) -> Sequence[Members]:
    evaluations, seqs = dossier.evidence.chronicle.evaluations, dossier.trail.evaluations
    return [
        {
            "entry": seq,
            **it.facts.forecast.model_dump(mode="json"),
            "counts": it.facts.counts,
            "is_late": it.facts.is_late,
        }
        for it, seq in zip(evaluations, seqs, strict=False)
        if dossier.is_new(seq)
    ]


def _list_incidents(dossier: Dossier, summary: Mapping[str, object]) -> Sequence[Members]:
    told = cast("list[Members]", summary["incidents"])
    trail = dossier.trail
    found: list[Members] = []
    for incident, facts in zip(dossier.evidence.memory.incidents, told, strict=True):
        seq = trail.ends.get(incident.attempt)
        if dossier.is_new(seq):
            deeds = trail.deeds.get(incident.attempt, ())
            found.append({"entry": seq, **facts, "done": list(map(_describe_deed, deeds))})
    return found


def _describe_entry(entry: Entry) -> Members:
    at = show_instant(entry.at.wall_ms)
    return {"seq": entry.seq, "at": at, "rule": entry.rule, "reason": entry.reason}


def _describe_deed(deed: Deed) -> Members:
    return {"entry": deed.seq, "text": deed.text}


def _describe_story(dossier: Dossier, story: Story) -> Members:
    return {
        **story.proposal.model_dump(mode="json"),
        "outcome": story.outcome,
        "by": story.by,
        "answer": story.reason,
        "entries": dossier.trail.proposals.get(story.proposal.id, []),
    }


def _describe_plan(dossier: Dossier, plan: Plan) -> Members:
    return {
        "sha": plan.sha,
        "entry": dossier.trail.plans.get(plan.sha),
        **plan.model_dump(mode="json", exclude={"format", "run_uid"}),
    }


def _list_series(dossier: Dossier) -> Members:
    scene = set_series(dossier.evidence)
    return {
        "bucket_steps": scene.bucket_steps,
        "buckets": [asdict(it) for it in scene.buckets if it is not None],
    }


def _describe_time(dossier: Dossier) -> Members:
    account = account_time(dossier)
    missing = account.wall_ms - account.sum_ms
    return {"phases_ms": account.phases, "wall_ms": account.wall_ms, "difference_ms": missing}


def _describe_tokens(dossier: Dossier) -> Members:
    account = account_tokens(dossier)
    return {**asdict(account), "difference": account.processed - account.sum}
