"""What differs between the accepted run file and the one given now, and whether it may."""

from dataclasses import dataclass

from controller.core.declared.problems import show_value
from controller.core.declared.spec import RunFile
from controller.core.declared.yaml_text import flatten

ALLOWED = {
    "spec.faults": "a policy of the controller and the watchdogs",
    "spec.checkpoints": "when to save moves no value of a step",
    "spec.evaluation": "held-out text is only read",
    "spec.deadline": "the owner's promise, not the trainer's",
    "spec.contingency": "judged anew at each evaluation",
    "spec.gate": "not part of a running run",
    "spec.telemetry": "where figures go",
    "spec.record": "words",
    "spec.simulation": "only a rehearsal reads it",
    "spec.data.alternatives": "declared mixtures, taken up by a revision only",
    "spec.fleet.peakFlopsPerDevice": "only MFU is measured against it",
    "spec.trainer.command": "a repaired trainer is a reason to relaunch",
}
"""Path -> why it may change between launches; also below a path that may not."""

REFUSED = {
    "metadata": "the name is the directory of the run",
    "spec.fleet": "another layout sums in another order, so the same step has other bits",
    "spec.model": "checkpoints hold this model",
    "spec.optimizer": "checkpoints hold its state",
    "spec.execution": "it decides which assignments are dropped",
    "spec.data": "data positions follow from it",
    "spec.budget": "the schedule ends at the horizon",
    "spec.batch": "steps and data positions follow from it",
    "spec.schedule": "past steps have received its values",
    "spec.seed": "data order and first weights follow from it",
}
"""Path -> why it may not. Anything that stands nowhere may not either."""


@dataclass(frozen=True)
class Change:
    """One field that differs."""

    path: str
    before: str
    after: str
    is_allowed: bool
    why: str

    def __str__(self) -> str:
        """Return the line that people see."""
        verdict = "may change" if self.is_allowed else "may NOT change"
        return f"{self.path}: {self.before} -> {self.after}   ({verdict}: {self.why})"


def compare_run_files(accepted: RunFile, given: RunFile) -> list[Change]:
    """Return every field that differs, a default and the same value written out being equal."""
    before, after = (
        flatten(file.model_dump(mode="json", by_alias=True)) for file in (accepted, given)
    )
    paths = [*before, *(path for path in after if path not in before)]
    return [
        _judge(path, before.get(path, ABSENT), after.get(path, ABSENT))
        for path in paths
        if before.get(path, ABSENT) != after.get(path, ABSENT)
    ]


ABSENT = "(absent)"


def _judge(path: str, before: object, after: object) -> Change:
    shown = path.replace("spec.model.shape.", "spec.model.")
    allowed, refused = _longest(path, ALLOWED), _longest(path, REFUSED)
    why = ALLOWED[allowed] if allowed else REFUSED.get(refused, "nothing says that it may")
    return Change(shown, _show(before), _show(after), bool(allowed), why)


def _show(value: object) -> str:
    return ABSENT if value == ABSENT else show_value(value)


def _longest(path: str, table: dict[str, str]) -> str:
    matches = (known for known in table if path == known or path.startswith(f"{known}."))
    return max(matches, key=len, default="")
