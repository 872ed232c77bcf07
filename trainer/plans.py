"""Reading plans and their chains from the run directory, each checked on its own.

No rank trusts another's reading: all of them read and check the chain themselves.
"""

from itertools import pairwise
from pathlib import Path

from contract.checkpoint import CheckpointError, read_manifest
from contract.config import TrainerConfig
from contract.exits import Exit
from contract.plan import Line, Plan, PlanError, check_child, read_plan
from contract.wire import CHECKPOINTS_DIR, MANIFEST_FILE, ControlError, ControlRefusal, plan_file
from trainer.ends import End
from trainer.store import list_places

LONGEST_CHAIN = 10_000
"""More revisions than any run makes; a chain this long is a loop."""


def read_chain(run_dir: Path, sha: str) -> list[Plan]:
    """Return the plans from the genesis plan to `sha`, each read and checked in itself.

    Raises:
        FileNotFoundError: a plan file of the chain is not there (yet).
        PlanError: one is not the plan of its name, or is inconsistent.
    """
    chain: list[Plan] = []
    wanted: str | None = sha
    while wanted is not None:
        if len(chain) == LONGEST_CHAIN:
            raise PlanError([f"the chain of {sha[:12]} has no beginning"])
        plan = read_plan((run_dir / plan_file(wanted)).read_bytes(), sha=wanted)
        chain.append(plan)
        wanted = plan.parent
    return chain[::-1]


def find_saved_chain(run_dir: Path, run_uid: str) -> list[Plan] | None:
    """Return the chain in the newest complete checkpoint of any line, None when there is none.

    For a gang whose plan file never came: the checkpoint carries its whole chain.
    """
    places = [
        place
        for folder in sorted((run_dir / CHECKPOINTS_DIR).glob("*"))
        for place in list_places(run_dir, [Line(name=folder.name, fork_step=0, offset_blocks=0)])
    ]
    for place in sorted(places, key=lambda place: place.step, reverse=True):
        try:
            manifest = read_manifest((place.path / MANIFEST_FILE).read_bytes())
        except (CheckpointError, OSError):
            continue
        if manifest.run_uid == run_uid and not place.is_quarantined:
            return manifest.plans
    return None


def check_chain(chain: list[Plan], config: TrainerConfig) -> None:
    """Check that every plan may follow the one before it and belongs to this config.

    Raises:
        End: 84 for a chain that breaks or changes its past, 2 for another config or other data.
    """
    for parent, child in pairwise(chain):
        problems = check_child(parent, child)
        if problems:
            text = f"plan {child.sha[:12]} may not follow {parent.sha[:12]}: {'; '.join(problems)}"
            raise End(Exit.PLAN_MISMATCH, text)
    plan = chain[-1]
    if plan.run_uid != config.run_uid:
        raise End(Exit.PLAN_MISMATCH, f"plan {plan.sha[:12]} is of run {plan.run_uid}")
    if plan.config_sha != config.config_sha:
        raise End(Exit.CONFIG, _differs("config_sha", plan.config_sha, config.config_sha))
    if plan.data_digest != config.data_digest:
        raise End(Exit.CONFIG, _differs("data_digest", plan.data_digest, config.data_digest))


def _differs(member: str, planned: str, configured: str) -> str:
    return f"{member} of the plan is {planned[:12]}; the attempt's config has {configured[:12]}"


def read_revision(run_dir: Path, sha: str, held: list[Plan], act_at: int) -> list[Plan]:
    """Return the chain of a revision that a running gang may take up at step `act_at` or later.

    `held` is the chain of the plan held now.

    Raises:
        ControlError: with the refusal that the rank's metrics show.
    """
    try:
        chain = read_chain(run_dir, sha)
    except OSError as error:
        path = Path(error.filename)
        is_pointed_at = path == run_dir / plan_file(sha)
        reason = ControlRefusal.PLAN_MISSING if is_pointed_at else ControlRefusal.PLAN_CHAIN
        raise ControlError(reason, f"{path.name}: {error.strerror}") from error
    except PlanError as error:
        raise ControlError(ControlRefusal.PLAN_INVALID, str(error)) from error
    shas = [plan.sha for plan in chain]
    if held[-1].sha not in shas:
        raise ControlError(
            ControlRefusal.PLAN_CHAIN, f"{sha[:12]} does not descend from {held[-1].sha[:12]}"
        )
    fresh = chain[shas.index(held[-1].sha) :]
    for parent, child in pairwise(fresh):
        _require_successor(parent, child, act_at)
    return chain


def require_succession(pending: list[Plan], chain: list[Plan]) -> None:
    """Check that `chain` may take the place of `pending`, the chain that waits for its step.

    A second revision waits until the first is adopted; only its sibling may replace it.

    Raises:
        ControlError: it leaves the pending chain without superseding anything.
    """
    for waiting, coming in zip(pending, chain, strict=False):
        if waiting != coming and coming.supersedes is None:
            text = f"{coming.sha[:12]} does not supersede {waiting.sha[:12]}, which is pending"
            raise ControlError(ControlRefusal.PLAN_CHAIN, text)
        if waiting != coming:
            return


def _require_successor(parent: Plan, child: Plan, act_at: int) -> None:
    problems = check_child(parent, child)
    if problems:
        is_chain = any(problem.startswith("parent is") for problem in problems)
        refusal = ControlRefusal.PLAN_CHAIN if is_chain else ControlRefusal.PLAN_PAST
        raise ControlError(refusal, "; ".join(problems))
    if child.kind in ("execution", "line"):
        raise ControlError(
            ControlRefusal.PLAN_EXECUTION, f"a revision of kind {child.kind} needs a restart"
        )
    if child.effective < act_at:
        raise ControlError(
            ControlRefusal.PLAN_LATE, f"effective at {child.effective}; the gang is at {act_at}"
        )
