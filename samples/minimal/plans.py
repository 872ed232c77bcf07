"""Plans on disk: a plan is read with its whole chain, or not at all."""

from collections.abc import Sequence
from pathlib import Path

from contract.plan import Plan, PlanError, check_child, read_plan
from contract.wire import ControlRefusal, plan_file


class ChainError(Exception):
    """A plan that must not be run, with the reason a control document is refused for."""

    def __init__(self, refusal: ControlRefusal, detail: str) -> None:
        self.refusal = refusal
        super().__init__(detail)


def read_chain(run_dir: Path, sha: str) -> list[Plan]:
    """Return the plans from the genesis plan to `sha`, each checked against its parent.

    Raises:
        ChainError: a plan is missing, unreadable or changes the past of its parent.
    """
    chain: list[Plan] = []
    wanted: str | None = sha
    while wanted is not None:
        plan = _read(run_dir, wanted, is_pointed_at=not chain)
        if chain:
            problems = check_child(plan, chain[-1])
            if problems:
                raise ChainError(ControlRefusal.PLAN_PAST, "; ".join(problems))
        chain.append(plan)
        wanted = plan.parent
    return chain[::-1]


def require_succession(pending: Sequence[Plan], chain: Sequence[Plan]) -> None:
    """Check that `chain` may take the place of `pending`, the chain that waits for its step.

    A second revision waits until the first is adopted; only its sibling may replace it.

    Raises:
        ChainError: it leaves the pending chain without superseding anything.
    """
    for waiting, coming in zip(pending, chain, strict=False):
        if waiting != coming and coming.supersedes is None:
            detail = f"{coming.sha[:12]} does not supersede {waiting.sha[:12]}, which is pending"
            raise ChainError(ControlRefusal.PLAN_CHAIN, detail)
        if waiting != coming:
            return


def _read(run_dir: Path, sha: str, *, is_pointed_at: bool) -> Plan:
    try:
        data = (run_dir / plan_file(sha)).read_bytes()
    except OSError as error:
        reason = ControlRefusal.PLAN_MISSING if is_pointed_at else ControlRefusal.PLAN_CHAIN
        raise ChainError(reason, f"{plan_file(sha)}: {error.strerror}") from error
    try:
        return read_plan(data, sha=sha)
    except PlanError as error:
        raise ChainError(ControlRefusal.PLAN_INVALID, f"{plan_file(sha)}: {error}") from error
