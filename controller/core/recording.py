"""A decision as it stands in the ledger: all that a replay needs besides older records."""

import json
from collections.abc import Callable, Mapping
from typing import cast

from pydantic import TypeAdapter

from controller.core.actions import Action, Decision
from controller.core.columns import pack_rows, unpack_rows
from controller.core.snapshot import Snapshot

Members = dict[str, object]

ACTIONS: TypeAdapter[list[Action]] = TypeAdapter(list[Action])
FOREIGN = (ValueError, KeyError, IndexError, TypeError, AttributeError)
"""What comes of reading a body that this core never wrote: a later one's, or one made by hand."""
MEMBERS: TypeAdapter[list[Members]] = TypeAdapter(list[Members])


def body_of(decision: Decision, snapshot: Snapshot) -> Members:
    """Return the body of a decision's record, its rows of ranks as columns."""
    body: Members = decision.model_dump(mode="json")
    actions = cast("list[Members]", body["actions"])
    body["actions"] = [_alter_action(action, _pack) for action in actions]
    body["snapshot"] = _alter_snapshot(snapshot.model_dump(mode="json"), _pack)
    return body


def read_actions(body: Mapping[str, object]) -> list[Action]:
    """Return the actions of a decision record's body."""
    actions = MEMBERS.validate_python(body["actions"])
    # From JSON, because strict models take enums and tuples from there only.
    return ACTIONS.validate_json(json.dumps([_alter_action(it, unpack_rows) for it in actions]))


def read_snapshot(body: Mapping[str, object]) -> Snapshot:
    """Return what the decision of a record's body rested on."""
    [snapshot] = MEMBERS.validate_python([body["snapshot"]])
    members = _alter_snapshot(snapshot, unpack_rows)
    return Snapshot.model_validate_json(json.dumps(members))


def _pack(rows: object) -> object:
    return pack_rows(cast("list[Members]", rows))


Alter = Callable[[object], object]


def _alter_action(action: Members, alter: Alter) -> Members:
    is_wide = action["verb"] == "record_end"
    return {**action, "ranks": alter(action["ranks"])} if is_wide else action


def _alter_snapshot(snapshot: Members, alter: Alter) -> Members:
    altered = {**snapshot, "telemetry": alter(snapshot["telemetry"])}
    for field, names in WIDE.items():
        if isinstance(view := snapshot[field], dict) and "unknown" not in view:
            members = cast("Members", view)
            altered[field] = {**members, **{name: alter(members[name]) for name in names}}
    return altered


WIDE = {"gang": ("ranks",), "store": ("checkpoints", "set_aside")}
"""Members of a snapshot's fields that grow with the fleet or with the run."""
