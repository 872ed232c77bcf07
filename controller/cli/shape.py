"""Whether a file that says it is a status has the form that the words for people rest on.

A status is read while nobody vouches for it: one of another form counts as unreadable.
"""

from collections.abc import Callable, Mapping
from typing import cast

Members = Mapping[str, object]
Check = Callable[[object], bool]


def is_status(value: object) -> bool:
    """Return whether `value` is a status: what is there has its type; little must be there."""
    if not isinstance(value, dict) or not {"state", "reason"} <= value.keys():
        return False
    return _fits(cast("Members", value), STATUS)


def _fits(members: Members, form: Mapping[str, Check]) -> bool:
    return all(check(members[name]) for name, check in form.items() if name in members)


def _is(*types: type) -> Check:
    return lambda value: isinstance(value, types) and not isinstance(value, bool)


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _members(form: Mapping[str, Check], *needed: str) -> Check:
    def check(value: object) -> bool:
        if not isinstance(value, dict) or not set(needed) <= value.keys():
            return False
        return _fits(cast("Members", value), form)

    return check


def _list(check: Check) -> Check:
    return lambda value: (
        isinstance(value, list) and all(check(it) for it in cast("list[object]", value))
    )


NUMBER = _optional(_is(int, float))
FIGURES: Mapping[str, Check] = dict.fromkeys(
    ("loss", "grad_norm", "step_s", "tokens_per_second", "mfu_percent", "drops_percent"), NUMBER
)
INCIDENTS = {"recent": _list(_members({}, "attempt", "cause", "evidence", "at"))}
LAG: Mapping[str, Check] = dict.fromkeys(
    ("lost_ms", "slow_ms", "total_ms", "even_us", "mean_us"), NUMBER
)
FORECAST: Mapping[str, Check] = {
    **dict.fromkeys(("p10", "p50", "p90", "due", "on_time_permille", "step"), NUMBER),
    "lag": _optional(_members(LAG)),
}
FACTS: Mapping[str, Check] = {
    "before": _optional(_members(FORECAST)),
    "after": _optional(_members(FORECAST)),
}
PROPOSAL: Mapping[str, Check] = {
    "facts": _members(FACTS),
    **dict.fromkeys(("expires", "window_closes", "fork_now", "deadline"), NUMBER),
}
CHANGE: Mapping[str, Check] = dict.fromkeys(("step", "step_us", "before_step", "before_us"), NUMBER)
REVISION: Check = _members({}, "sha", "kind")
STORE = {"quarantined": _list(_members({}, "line", "step", "reason"))}
STATUS: Mapping[str, Check] = {
    "state": _is(str),
    "reason": _is(str),
    "at": _is(int),
    "figures": _optional(_members(FIGURES)),
    "ranks": _list(_members({}, "rank")),
    "notes": _list(_members({"at": _is(int)}, "subject", "text", "at")),
    "incidents": _members(INCIDENTS, "count", "recent"),
    "checkpoints": _optional(_members(STORE)),
    "last_decision": _optional(_members({}, "reason")),
    "plan": _members({}),
    "forecast": _optional(_members(FORECAST)),
    "proposal": _optional(_members(PROPOSAL, "id", "author", "summary", "facts")),
    "evaluation": _optional(_members({}, "late", "evaluations")),
    "pace_change": _optional(_members(CHANGE, "step", "step_us")),
    "approval": _optional(_members({}, "by")),
    "revision": _optional(REVISION),
    "revisions": _list(REVISION),
    "closed": _list(_members({}, "id", "outcome", "reason")),
    "answers": _list(_members({}, "nonce", "accepted", "text")),
}
