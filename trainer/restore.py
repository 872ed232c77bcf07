"""Finding the checkpoint to start from: the newest that is complete, admissible and undamaged.

Rank 0 names a candidate, checks its files and tells the others; each rank reads its shards and
gives its share of every digest; all add the shares and so reach the same verdict. A damaged one is
marked first and left where it lies; then the next older is tried.
"""

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax

from contract.checkpoint import Manifest, read_manifest
from contract.exits import Exit
from contract.plan import Plan, is_admissible
from contract.wire import MANIFEST_FILE, STATE_DIR, Restore
from trainer.arrays import compare_digests, digest_held, name_arrays, restore_arrays
from trainer.checkpoint import classify_failure
from trainer.ends import End
from trainer.gang import Gang, first_line
from trainer.seat import Seat
from trainer.step import TrainState
from trainer.store import CheckpointStore, DamageError, Place, check_files, list_places

LOG = logging.getLogger(__name__)

NOTHING = "nothing"


@dataclass(frozen=True)
class Restored:
    """A state and where it stands."""

    state: TrainState
    manifest: Manifest


class Restorer:
    """One rank's side of the search."""

    def __init__(self, seat: Seat, gang: Gang, chain: list[Plan], timeout_s: float) -> None:
        self._seat = seat
        self._gang = gang
        self._chain = chain
        self._timeout_s = timeout_s
        self._store = CheckpointStore(seat.run_dir, seat.attempt)
        self._tries = 0

    def restore(self, like: TrainState, advance: Callable[[], None]) -> Restored | None:
        """Return the newest usable state shaped like `like`, or None to start at step 0.

        `advance` is called after each candidate's stages.

        Raises:
            End: a checkpoint was required and there is none; or the code lost an array.
            GangError: a rank gave no verdict in time.
        """
        candidates = self._find_candidates(advance) if self._seat.is_first else iter(())
        while True:
            self._tries += 1
            place = self._hear(next(candidates, None))
            if place is None:
                return self._start_empty()
            manifest = read_manifest((place.path / MANIFEST_FILE).read_bytes())
            state, verdict = self._read(place, manifest, like)
            advance()
            if state is not None:
                return self._accept(place, manifest, state)
            self._reject(place, verdict)

    def _start_empty(self) -> None:
        if self._seat.restore is not Restore.NONE:
            kind = "verified " if self._seat.restore is Restore.VERIFIED else ""
            raise End(Exit.NO_CHECKPOINT, f"no {kind}checkpoint of {self._lines} can be restored")

    @property
    def _lines(self) -> str:
        return "line " + ", ".join(line.name for line in self._chain[-1].lineage)

    def _find_candidates(self, advance: Callable[[], None]) -> Iterator[Place]:
        """Yield checkpoints whose files are as the manifest says, newest first."""
        for place in list_places(self._seat.run_dir, self._chain[-1].lineage):
            if place.is_quarantined:
                continue
            if self._seat.restore is Restore.VERIFIED and not place.is_verified:
                continue
            try:
                manifest = check_files(place, self._seat.run_uid)
            except (DamageError, FileNotFoundError) as error:
                self._reject(place, str(error))
                continue
            advance()
            if is_admissible(self._chain, manifest.plan_sha, manifest.step):
                yield place
            else:
                LOG.info("checkpoint %s/%d is not of this plan's past", place.line, place.step)

    def _hear(self, place: Place | None) -> Place | None:
        text = f"{place.line} {place.step}" if place else NOTHING
        mine = text if self._seat.is_first else None
        text = self._gang.share(f"restore/{self._tries}/place", mine, self._timeout_s)
        if text == NOTHING:
            return None
        line, _, step = text.partition(" ")
        return Place(self._seat.run_dir, line, int(step))

    def _read(
        self, place: Place, manifest: Manifest, like: TrainState
    ) -> tuple[TrainState | None, str]:
        """Return the state, or None and what is wrong with it: the same on every rank."""
        _require_same_arrays(manifest, like)
        state, words = None, ""
        try:
            state = restore_arrays(place.path / STATE_DIR, like)
            words = json.dumps(digest_held(state))
        except (OSError, ValueError, TypeError, KeyError, jax.errors.JaxRuntimeError) as error:
            words = f"{classify_failure(error)}: {first_line(error)}"
        name = f"restore/{self._tries}/shares"
        answers = self._gang.gather(name, words, self._timeout_s)
        unread = [answer for answer in answers if not answer.startswith("{")]
        if unread:
            return None, f"cannot be restored: {unread[0]}"
        wrong = compare_digests(manifest.arrays, [json.loads(answer) for answer in answers])
        if wrong is not None:
            return None, f"array {wrong} differs from its digest"
        return state, ""

    def _accept(self, place: Place, manifest: Manifest, state: TrainState) -> Restored:
        if self._seat.is_first and not place.is_verified:
            try:
                self._store.mark_verified(place)
            except OSError as error:
                LOG.warning("%s: %s", place.verified_path, error.strerror)
        LOG.info("restored %s/%d", place.line, place.step)
        return Restored(state, manifest)

    def _reject(self, place: Place, reason: str) -> None:
        if not self._seat.is_first:
            return
        try:
            self._store.mark_quarantined(place, reason)
        except OSError as error:
            # Not marked, it is still not used: the next attempt finds the same damage.
            LOG.warning("%s: %s", place.quarantined_path, error.strerror)


def _require_same_arrays(manifest: Manifest, like: TrainState) -> None:
    saved = {array.path for array in manifest.arrays}
    wanted = set(name_arrays(like))
    if saved != wanted:
        names = ", ".join(sorted(saved ^ wanted)[:3])
        raise End(Exit.NO_RETRY, f"checkpoint {manifest.step} and this code differ in {names}")
