"""Saving without stopping: the main thread copies the arrays, a thread of each rank does the rest.

A save is complete when all ranks committed, the manifest is written and the folder is renamed; it
is verified when the arrays, read back from the files, have the digests taken on the devices. The
ranks' threads speak through the gang's store, each wait under the commit deadline, so a peer that
failed or died is noticed and hangs nobody.
"""

import errno
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from contract import metrics
from contract.checkpoint import ArrayDigest, CheckpointError, Manifest, read_manifest
from contract.config import TrainerConfig
from contract.data import cursors_at
from contract.exits import Exit
from contract.metrics import Sample
from contract.plan import Plan, is_admissible
from contract.wire import MANIFEST_FILE, STATE_DIR, LedgerHead
from trainer.arrays import ArrayWriter, compare_digests, list_digests, read_arrays
from trainer.ends import leave
from trainer.gang import Gang, GangError
from trainer.integrity import digest_numpy, state_digests
from trainer.seat import Seat
from trainer.step import TrainState
from trainer.store import (
    CheckpointStore,
    DamageError,
    Place,
    check_files,
    digest_files,
    read_if_there,
)
from trainer.telemetry import Meter

LOG = logging.getLogger(__name__)

POLL_S = 0.1
VERIFIED = "verified"
WRITE = "write"
PRESENT = "present"
NO_SPACE = "no_space"
NO_PERMISSION = "permission"
OTHER = "other"
REASONS = (NO_SPACE, NO_PERMISSION, OTHER)
NO_LEDGER = LedgerHead(seq=0, hash="0" * 64)
"""The ledger head of a gang that no controller has spoken to yet."""


class SaveError(Exception):
    """A save failed; `reason` is one of REASONS."""

    def __init__(self, reason: str, text: str) -> None:
        self.reason = reason
        super().__init__(text)


@dataclass(frozen=True)
class Moment:
    """Where the run stands when it is saved."""

    chain: list[Plan]
    step: int
    last_loss: str
    ledger_head: LedgerHead

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self.chain[-1]


@dataclass
class Save:
    """One save of this attempt, on its way. `number` counts saves and names its keys."""

    number: int
    moment: Moment
    place: Place
    work: Path
    arrays: list[ArrayDigest]
    rng: str
    deadline_s: float
    writer: ArrayWriter | None = None
    outcome: str = ""
    """Empty while it runs, then VERIFIED or `reason: text`; equal on all ranks."""

    def key(self, *parts: str | int) -> str:
        """Return a key of this save in the gang's store."""
        return "/".join(("save", str(self.number), *map(str, parts)))


class Saver:
    """One rank's side of all saves of an attempt; one runs at a time."""

    def __init__(
        self, seat: Seat, config: TrainerConfig, gang: Gang, meter: Meter, code: str
    ) -> None:
        self._seat = seat
        self._config = config
        self._gang = gang
        self._meter = meter
        self._code = code
        self._store = CheckpointStore(seat.run_dir, seat.attempt)
        self._number = 0
        self._thread: threading.Thread | None = None
        self._began_s: float | None = None
        self._newest: Save | None = None
        self._forgettable: list[str] = []
        if seat.is_first:
            for reason in REASONS:
                meter.add(metrics.CHECKPOINT_FAILURES, 0, reason=reason)
        meter.watch(lambda: [Sample(metrics.RANK_COMMIT_AGE, self.commit_age_s)])

    @property
    def commit_age_s(self) -> float:
        """Seconds since the running save began, 0 when none runs."""
        began_s = self._began_s
        return 0.0 if began_s is None else time.monotonic() - began_s

    def holds(self, plan: Plan, step: int) -> bool:
        """Return whether the newest save was of this moment and is verified."""
        save = self._newest
        if save is None or save.outcome != VERIFIED:
            return False
        return (save.place.line, save.place.step) == (plan.line.name, step)

    def begin(self, state: TrainState, moment: Moment, advance: Callable[[], None]) -> None:
        """Copy the state and save it in the background; all ranks call this at the same step.

        Waits for the save before it. `advance` is called meanwhile: a save has its own deadline.
        """
        self.finish(advance)
        if self._seat.is_first and self._newest is not None:
            # All ranks took its outcome: they have begun the save after it, or are about to.
            self._forgettable.append(self._newest.key())
            if len(self._forgettable) > 1:
                self._gang.store.forget(self._forgettable.pop(0))
        start_s = time.perf_counter()
        self._began_s = time.monotonic()
        save = self._prepare(state, moment)
        failure = None
        try:
            if self._agree(save) == WRITE:
                save.writer = ArrayWriter(
                    f"save-{save.number}", self._gang.ranks, self._config.limits.commit_s
                )
                save.writer.start(state, save.work / STATE_DIR)
        except (OSError, ValueError, SaveError, jax.errors.JaxRuntimeError) as error:
            failure = error
        self._newest = save
        self._thread = threading.Thread(
            target=self._run, args=(save, failure), name="save", daemon=True
        )
        self._thread.start()
        self._count_seconds("blocking", start_s)

    def finish(self, advance: Callable[[], None]) -> str:
        """Wait for the running save and return its outcome; VERIFIED when there was none."""
        while self._thread is not None:
            self._thread.join(POLL_S)
            advance()
            if not self._thread.is_alive():
                self._thread = None
        return self._newest.outcome if self._newest else VERIFIED

    def _prepare(self, state: TrainState, moment: Moment) -> Save:
        self._number += 1
        line = moment.plan.line.name
        start_s = time.perf_counter()
        arrays = list_digests(state, state_digests(state))
        self._count_seconds("digest", start_s)
        return Save(
            number=self._number,
            moment=moment,
            place=self._store.place(line, moment.step),
            work=self._store.work_path(line, moment.step, self._number),
            arrays=arrays,
            rng=np.asarray(state.rng.addressable_data(0)).tobytes().hex(),
            deadline_s=time.monotonic() + self._config.limits.commit_s,
        )

    def _agree(self, save: Save) -> str:
        """Return whether to WRITE, or that the same checkpoint is PRESENT; raises SaveError."""
        verdict = self._look(save) if self._seat.is_first else None
        verdict = self._gang.share(save.key("start"), verdict, self._config.limits.commit_s)
        if verdict in (WRITE, PRESENT):
            return verdict
        raise _read_failure(verdict)

    def _look(self, save: Save) -> str:
        try:
            if not save.place.is_quarantined and self._holds_same(save):
                return PRESENT
            self._store.remove_own_work(save.place.line)
            save.work.mkdir(parents=True)
        except OSError as error:
            return _write_failure(error)
        return WRITE

    @staticmethod
    def _holds_same(save: Save) -> bool:
        data = read_if_there(save.place.path / MANIFEST_FILE)
        if data is None:
            return False
        try:
            manifest = read_manifest(data)
        except CheckpointError:
            return False
        # The step at a fork trains alike under the plan that was left there: same arrays, but
        # no revision may start from what that plan saved after it.
        is_ours = is_admissible(save.moment.chain, manifest.plan_sha, save.moment.step)
        return is_ours and manifest.arrays == save.arrays

    def _run(self, save: Save, failure: Exception | None) -> None:
        """Carry a save to its outcome; the outermost frame of the thread."""
        start_s = time.perf_counter()
        try:
            if failure is not None:
                raise failure
            self._commit(save)
            if self._seat.is_first:
                self._complete(save)
            self._await(save, save.key("complete"))
            self._verify(save)
        except Exception as error:  # noqa: BLE001  the thread's outermost frame: any failure counts
            self._fail(save, error)
        else:
            self._settle(save, VERIFIED)
        finally:
            self._began_s = None
            self._count_seconds("background", start_s)

    def _commit(self, save: Save) -> None:
        while save.writer is not None and not save.writer.poll(POLL_S):
            self._check_peers(save)
        self._gang.store.put(save.key("committed", self._gang.rank), "")
        if self._seat.is_first:
            for rank in range(self._gang.ranks):
                self._await(save, save.key("committed", rank))

    def _complete(self, save: Save) -> None:
        self._refuse_if_succeeded(save)
        if save.writer is not None:
            if save.place.is_complete and not save.place.is_quarantined:
                reason = "another state of the same step was computed since"
                self._store.mark_quarantined(save.place, reason)
            self._store.complete(save.work, save.place, self._write_manifest(save))
        self._gang.store.put(save.key("complete"), "")

    def _write_manifest(self, save: Save) -> Manifest:
        moment, mesh = save.moment, self._config.mesh
        return Manifest(
            run_uid=self._seat.run_uid,
            attempt=self._seat.attempt,
            line=moment.plan.line.name,
            step=moment.step,
            plans=moment.chain,
            ledger_head=moment.ledger_head,
            cursors=cursors_at(moment.plan, moment.step),
            rng=save.rng,
            mesh=mesh.model_dump() | {"replicas": mesh.replicas},
            code=self._code,
            last_loss=moment.last_loss,
            arrays=save.arrays,
            files=digest_files(save.work),
        )

    def _verify(self, save: Save) -> None:
        """Read files and arrays back, each rank its share of the arrays; rank 0 compares."""
        if self._seat.is_first:
            check_files(save.place, self._seat.run_uid)
        mine = save.arrays[self._gang.rank :: self._gang.ranks]
        try:
            read = read_arrays(save.place.path / STATE_DIR, mine)
        except (ValueError, KeyError, TypeError) as error:
            # Without its share no digest adds up, and rank 0 sees the damage.
            LOG.warning("reading back: %s", error)
            read = {}
        shares = {path: digest_numpy(array) for path, array in read.items()}
        self._gang.store.put(save.key("read", self._gang.rank), json.dumps(shares))
        if not self._seat.is_first:
            return
        texts = [self._await(save, save.key("read", rank)) for rank in range(self._gang.ranks)]
        wrong = compare_digests(save.arrays, [json.loads(text) for text in texts])
        self._refuse_if_succeeded(save)
        if wrong is not None:
            raise DamageError(f"array {wrong} reads back different from what was saved")
        self._store.mark_verified(save.place)
        self._retain(save)

    def _retain(self, save: Save) -> None:
        limits = self._config.checkpointing
        try:
            plan, permanent_every = save.moment.plan, limits.permanent_every_steps
            self._store.retain(plan, limits.keep, permanent_every)
        except OSError as error:
            LOG.warning("old checkpoints are not deleted: %s", error)

    def _await(self, save: Save, key: str) -> str:
        """Return the value of `key`; raises SaveError when a peer failed or the deadline passed."""
        while (value := self._gang.store.wait(key, POLL_S)) is None:
            self._check_peers(save)
        return value

    def _check_peers(self, save: Save) -> None:
        failures = self._gang.store.entries(save.key("failed"))
        if failures:
            raise _read_failure(next(iter(failures.values())))
        if time.monotonic() > save.deadline_s:
            raise SaveError(OTHER, f"not committed in {self._config.limits.commit_s} s")

    def _fail(self, save: Save, error: Exception) -> None:
        """Tell the peers, then take the outcome that rank 0 gives."""
        text = _write_failure(error)
        LOG.warning("save of step %d failed, training goes on: %s", save.moment.step, text)
        try:
            self._gang.store.put(save.key("failed", self._gang.rank), text)
            if isinstance(error, DamageError) and self._seat.is_first:
                self._store.mark_quarantined(save.place, str(error))
        except (GangError, OSError) as other:
            LOG.warning("%s", other)
        if self._seat.is_first:
            self._store.remove_own_work(save.place.line)
            reason = text.partition(": ")[0]
            self._meter.add(metrics.CHECKPOINT_FAILURES, 1, reason=reason)
        self._settle(save, text)

    def _settle(self, save: Save, outcome: str) -> None:
        """Give the outcome as rank 0, take it as another rank."""
        limit_s = self._config.limits.commit_s
        try:
            mine = outcome if self._seat.is_first else None
            outcome = self._gang.share(save.key("outcome"), mine, limit_s)
        except GangError as error:
            LOG.warning("%s", error)
        if outcome == VERIFIED:
            LOG.info("checkpoint %s/%d is verified", save.place.line, save.place.step)
        save.outcome = outcome

    def _refuse_if_succeeded(self, save: Save) -> None:
        successor = self._store.find_successor()
        if successor is not None:
            text = f"attempt {successor} is claimed: attempt {self._seat.attempt} may not save"
            leave(self._seat.rank_dir, Exit.NO_RETRY, step=save.moment.step, text=text)

    def _count_seconds(self, stage: str, start_s: float) -> None:
        if self._seat.is_first:
            spent_s = time.perf_counter() - start_s
            self._meter.add(metrics.CHECKPOINT_SECONDS, spent_s, stage=stage)


def classify_failure(error: BaseException) -> str:
    """Return which of REASONS an error is; libraries wrap the system's words in their own."""
    if isinstance(error, SaveError):
        return error.reason
    number = error.errno if isinstance(error, OSError) else None
    text = str(error)
    if number in (errno.ENOSPC, errno.EDQUOT) or "No space left" in text or "quota" in text:
        return NO_SPACE
    if number in (errno.EACCES, errno.EPERM, errno.EROFS) or _is_refusal(text):
        return NO_PERMISSION
    return OTHER


def _is_refusal(text: str) -> bool:
    words = ("Permission denied", "PERMISSION_DENIED", "Read-only file system", "not permitted")
    return any(word in text for word in words)


def _write_failure(error: BaseException) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return f"{classify_failure(error)}: {lines[0]}"


def _read_failure(text: str) -> SaveError:
    reason, _, words = text.partition(": ")
    return SaveError(reason, words)
