"""Saving: staged by the main thread, committed, read back and thinned out by another."""

import errno
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from contract import metrics
from contract.canonical import hash_bytes
from contract.checkpoint import FileDigest, Manifest, encode_sealed
from contract.exits import Exit
from contract.plan import Plan, is_admissible
from contract.wire import (
    ATTEMPTS_DIR,
    CLAIM_FILE,
    MANIFEST_FILE,
    QUARANTINE_DIR,
    QUARANTINED_SUFFIX,
    STATE_DIR,
    WORK_DIR,
    line_dir,
)
from minimal.checkpoints import (
    ARRAY_SUFFIX,
    Damage,
    Place,
    State,
    list_lineage,
    load_manifest,
    load_state,
    mark_quarantined,
    mark_verified,
)
from minimal.ends import leave
from minimal.files import sync_dir, write_durable
from minimal.settings import Settings
from minimal.telemetry import Telemetry

REASONS = {
    errno.ENOSPC: "no_space",
    errno.EDQUOT: "no_space",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.EROFS: "permission",
}
"""What a failed save is counted under; anything else is `other`."""
OTHER = "other"


@dataclass(frozen=True)
class Snapshot:
    """The state at one step, its digests already in the manifest, its files not yet."""

    manifest: Manifest
    state: State

    @property
    def chain(self) -> Sequence[Plan]:
        """The plans the state was made under."""
        return self.manifest.plans


@dataclass
class Save:
    """One save on its way."""

    snapshot: Snapshot
    began_s: float = field(default_factory=time.monotonic)
    failure: str = "it ended without a verdict"
    """Why it failed so far; empty once it is complete and verified."""
    is_abandoned: bool = False
    """It outlived its deadline: it was counted as failed and must not be published any more."""


class Abandoned(Exception):
    """The save outlived its deadline; the failure is counted already."""


class Saver:
    """At most one save at a time; lives on rank 0."""

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        self._settings = settings
        self._telemetry = telemetry
        self._save: Save | None = None
        self._thread: threading.Thread | None = None
        self.saved_step = -1
        """The newest step that lies complete and verified on the current line."""
        for reason in (*dict.fromkeys(REASONS.values()), OTHER):
            telemetry.add(metrics.CHECKPOINT_FAILURES, 0.0, reason)

    def begin(self, snapshot: Snapshot) -> None:
        """Start to save; waits for the save before, so that there is only one."""
        self.wait()
        self._save = save = Save(snapshot)
        self._telemetry.commit_began_s = save.began_s
        # A daemon, because nothing may keep a rank that must leave.
        self._thread = threading.Thread(target=self._run, args=(save,), name="save", daemon=True)
        self._thread.start()

    def wait(self) -> str:
        """Wait for the running save, if any, under its deadline; return why the last one failed."""
        if self._thread is None or self._save is None:
            return ""
        limit_s = self._settings.config.limits.commit_s
        self._thread.join(max(0.0, self._save.began_s + limit_s - time.monotonic()))
        self.check_age()
        return self._save.failure

    def check_age(self) -> None:
        """Give up the running save when it is older than its deadline."""
        save, thread = self._save, self._thread
        if save is None or thread is None or not thread.is_alive():
            return
        limit_s = self._settings.config.limits.commit_s
        if time.monotonic() - save.began_s >= limit_s:
            save.is_abandoned = True
            self._thread = None
            self._fail(save, OTHER, f"the commit took longer than {limit_s} s")

    def _run(self, save: Save) -> None:
        try:
            self._commit(save)
        except OSError as error:
            reason = REASONS.get(error.errno or 0, OTHER)
            self._fail(save, reason, f"{error.filename or 'checkpoint'}: {error.strerror}")
        except Damage as damage:
            self._fail(save, OTHER, f"read back: {damage}")
        except Abandoned:
            return
        finally:
            if not save.is_abandoned:
                self._telemetry.commit_began_s = None

    def _fail(self, save: Save, reason: str, text: str) -> None:
        save.failure = text
        self._telemetry.commit_began_s = None
        self._telemetry.add(metrics.CHECKPOINT_FAILURES, 1.0, reason)
        sys.stderr.write(f"saving step {save.snapshot.manifest.step} failed: {text}\n")
        sys.stderr.flush()

    def _commit(self, save: Save) -> None:
        snapshot = save.snapshot
        step = snapshot.manifest.step
        place = Place(
            self._settings.run_dir / line_dir(snapshot.manifest.line), snapshot.manifest.step
        )
        self._refuse_when_fenced()
        if not self._is_there_already(place, snapshot):
            with self._telemetry.timed(metrics.CHECKPOINT_SECONDS, "commit"):
                self._write(place, save)
        with self._telemetry.timed(metrics.CHECKPOINT_SECONDS, "verify"):
            self._verify(place, snapshot)
        self.saved_step, save.failure = step, ""
        self._thin_out(snapshot.chain[-1])

    # Writing.

    def _write(self, place: Place, save: Save) -> None:
        work = place.line_path / WORK_DIR / f"a{self._settings.attempt}-{place.step}"
        if work.exists():
            shutil.rmtree(work)
        files: list[FileDigest] = []
        for name, data in sorted(save.snapshot.state.items()):
            path = f"{STATE_DIR}/{name}{ARRAY_SUFFIX}"
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            write_durable(work / path, data)
            files.append(FileDigest(path=path, size_bytes=len(data), sha256=hash_bytes(data)))
        manifest = save.snapshot.manifest.model_copy(update={"files": files})
        write_durable(work / MANIFEST_FILE, encode_sealed(manifest))
        for folder in (*(path for path in work.rglob("*") if path.is_dir()), work):
            sync_dir(folder)
        self._refuse_when_fenced()
        if save.is_abandoned:
            raise Abandoned
        self._make_room(place)
        work.rename(place.path)
        sync_dir(place.line_path)

    def _is_there_already(self, place: Place, snapshot: Snapshot) -> bool:
        """Return whether the same state lies there; anything else there is quarantined."""
        if not place.path.exists() or not place.is_usable():
            return False
        try:
            manifest = load_manifest(place)
            if manifest.arrays != snapshot.manifest.arrays:
                raise Damage(f"replayed differently in attempt {self._settings.attempt}")
            if not is_admissible(snapshot.chain, manifest.plan_sha, place.step):
                raise Damage(f"made under plan {manifest.plan_sha[:12]}, which was left before")
            load_state(place, manifest)
        except Damage as damage:
            mark_quarantined(place, str(damage), self._settings.attempt)
            return False
        return True

    def _make_room(self, place: Place) -> None:
        """Move what lies quarantined at this step aside, with its mark; no rank reads it now."""
        place.verified.unlink(missing_ok=True)
        aside = place.line_path / QUARANTINE_DIR
        name = f"{place.step}-a{self._settings.attempt}"
        # Each by itself: a crash may have come between the two.
        for path, target in (
            (place.path, aside / name),
            (place.quarantined, aside / f"{name}{QUARANTINED_SUFFIX}"),
        ):
            if path.exists():
                aside.mkdir(exist_ok=True)
                path.rename(target)

    def _verify(self, place: Place, snapshot: Snapshot) -> None:
        try:
            manifest = load_manifest(place)
            if manifest.arrays != snapshot.manifest.arrays:
                raise Damage("the manifest's arrays are not those that were staged")
            load_state(place, manifest)
        except Damage as damage:
            mark_quarantined(place, str(damage), self._settings.attempt)
            raise
        if not place.is_verified():
            mark_verified(place, self._settings.attempt)

    # Deleting.

    def _thin_out(self, plan: Plan) -> None:
        """Delete what lies behind the newest `keep` verified checkpoints, permanent ones spared."""
        options = self._settings.config.checkpointing
        places = [p for p in list_lineage(self._settings.run_dir, plan) if p.is_usable()]
        verified = [place for place in places if place.is_verified()]
        if len(verified) < options.keep:
            return
        oldest_kept = verified[options.keep - 1].step
        every = options.permanent_every_steps
        for place in places:
            is_permanent = every is not None and place.step % every == 0
            if place.step < oldest_kept and not is_permanent:
                self._refuse_when_fenced()
                self._delete(place)

    def _delete(self, place: Place) -> None:
        """Take the checkpoint out of sight first: half-deleted it would look damaged."""
        work = place.line_path / WORK_DIR
        work.mkdir(exist_ok=True)
        doomed = work / f"a{self._settings.attempt}-{place.step}.deleted"
        place.verified.unlink(missing_ok=True)
        place.path.rename(doomed)
        shutil.rmtree(doomed)

    def _refuse_when_fenced(self) -> None:
        """Leave at once when a later attempt has begun: this gang's writes are nobody's."""
        attempts = self._settings.run_dir / ATTEMPTS_DIR
        for path in attempts.glob(f"*/rank-*/{CLAIM_FILE}"):
            number = path.parent.parent.name
            if number.isdigit() and int(number) > self._settings.attempt:
                leave(
                    Exit.NO_RETRY,
                    f"attempt {number} has begun; attempt {self._settings.attempt} stops writing",
                    step=self._telemetry.step,
                    rank_dir=self._settings.rank_dir,
                )
