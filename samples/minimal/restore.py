"""Where a gang starts: the newest checkpoint that every rank finds sound."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from contract.checkpoint import Manifest
from contract.exits import Exit
from contract.plan import Plan, is_admissible
from contract.wire import CHECKPOINTS_DIR, WORK_DIR, Restore, line_dir
from minimal.checkpoints import (
    Damage,
    Place,
    list_everything,
    list_lineage,
    load_manifest,
    load_state,
    mark_quarantined,
    mark_verified,
)
from minimal.ends import End
from minimal.gang import Gang
from minimal.learner import Learner
from minimal.settings import Settings
from minimal.telemetry import Telemetry


def restore_state(
    settings: Settings, telemetry: Telemetry, gang: Gang, chain: Sequence[Plan], learner: Learner
) -> Manifest | None:
    """Load the newest sound admissible checkpoint into `learner`; None: start at step 0.

    Rank 0 names one candidate after the other, all ranks read it, and one bad verdict is enough
    to quarantine it: the mark is written before anyone looks at an older one.
    """
    candidates = _list_candidates(settings, chain)
    while True:
        named = gang.vote({}, lambda _: _name(next(candidates, None)))
        if named["line"] is None:
            return _start_without(settings)
        place = Place(settings.run_dir / line_dir(named["line"]), named["step"])
        manifest, damage = _try_load(place, settings, learner)
        telemetry.beat()
        verdict = gang.vote({"damage": damage}, lambda words: max(words, key=lambda w: w["damage"]))
        if settings.rank == 0:
            _mark(place, verdict["damage"], settings)
        if not verdict["damage"]:
            assert manifest is not None
            return manifest


def _name(place: Place | None) -> dict[str, object]:
    if place is None:
        return {"line": None, "step": 0}
    return {"line": place.line_path.name, "step": place.step}


def _list_candidates(settings: Settings, chain: Sequence[Plan]) -> Iterator[Place]:
    for place in list_lineage(settings.run_dir, chain[-1]):
        if not place.is_usable():
            continue
        if settings.restore is Restore.VERIFIED and not place.is_verified():
            continue
        try:
            manifest = load_manifest(place)
        except Damage:
            yield place  # every rank will find it damaged, and rank 0 quarantine it
            continue
        if is_admissible(chain, manifest.plan_sha, manifest.step):
            yield place


def _try_load(place: Place, settings: Settings, learner: Learner) -> tuple[Manifest | None, str]:
    try:
        manifest = load_manifest(place)
        if manifest.run_uid != settings.run_uid:
            raise Damage(f"manifest.json: of run {manifest.run_uid}")
        state = load_state(place, manifest)
        if {path: len(data) for path, data in state.items()} != _sizes(learner):
            raise Damage("the arrays are not those of this learner")
    except Damage as damage:
        return None, str(damage)
    learner.load(state)
    return manifest, ""


def _sizes(learner: Learner) -> dict[str, int]:
    return {path: len(values) * values.itemsize for path, values in learner.arrays.items()}


def _mark(place: Place, damage: str, settings: Settings) -> None:
    where = f"checkpoint {place.line_path.name}/{place.step}"
    if damage:
        mark_quarantined(place, damage, settings.attempt)
        sys.stderr.write(f"{where}: {damage}. Quarantined; trying the next older one.\n")
    elif not place.is_verified():
        mark_verified(place, settings.attempt)


def _start_without(settings: Settings) -> None:
    if settings.restore is not Restore.NONE:
        text = f"no checkpoint could be restored, and {settings.restore} needs one"
        raise End(Exit.NO_CHECKPOINT, text)


def read_newest_chain(run_dir: Path) -> list[Plan] | None:
    """Return the plans that the newest readable checkpoint carries; None without any."""
    for place in list_everything(run_dir):
        if place.is_usable():
            try:
                return load_manifest(place).plans
            except Damage:
                continue
    return None


def remove_stale_work(settings: Settings) -> None:
    """Remove the half-written checkpoints that earlier attempts left."""
    root = settings.run_dir / CHECKPOINTS_DIR
    for path in root.glob(f"*/{WORK_DIR}/a*-*"):
        number = path.name[1:].partition("-")[0]
        if number.isdigit() and int(number) < settings.attempt:
            shutil.rmtree(path, ignore_errors=True)
