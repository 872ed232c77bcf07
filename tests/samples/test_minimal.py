"""The inner parts of the minimal trainer that no run shows by itself."""

import math
import os
import random
import threading
import time
from array import array
from collections import Counter
from pathlib import Path

import pytest

from contract.checkpoint import Manifest, read_quarantine_mark
from contract.config import Optimizer
from contract.data import cursors_at
from contract.plan import Plan
from contract.wire import MANIFEST_FILE, STATE_DIR, Phase, Restore, checkpoint_dir
from minimal.checkpoints import Damage, Place, load_manifest, load_state, mark_quarantined
from minimal.files import LineLog
from minimal.gang import _add
from minimal.learner import Learner, count_pairs, digest_state, gradient_norm
from minimal.saver import Saver, Snapshot
from minimal.settings import Settings
from minimal.telemetry import Telemetry
from tests.conformance.harness import EMPTY_HEAD, RUN_UID, Run
from tests.conformance.trainers import MINIMAL

TEXT = [b"the quick brown fox jumps over the lazy dog", b"THE END"]


def a_learner(steps: int = 20) -> Learner:
    learner = Learner(Optimizer())
    pairs = count_pairs(TEXT)
    for step in range(steps):
        gradient = array("d", [value / pairs.total() for value in learner.gradient(pairs)])
        learner.update(gradient, step, {"matrix": 0.05, "other": 0.05}, {"matrix": 0.1})
    return learner


def test_gradient_is_the_slope_of_the_loss():
    learner, pairs = a_learner(), count_pairs(TEXT)
    gradient = learner.gradient(pairs)
    offsets = {"bias/value": 1, "table/value": 257}
    for name, index in (("bias/value", 101), ("table/value", 8 * 256 + 101), ("bias/value", 0)):
        slopes = []
        for side in (-1, 1):
            moved = a_learner()
            moved.arrays[name][index] += side / 256
            slopes.append(moved.loss(pairs))
        assert gradient[offsets[name] + index] == pytest.approx(
            (slopes[1] - slopes[0]) * 128, rel=1e-3
        )
    assert learner.loss(pairs) == gradient[0]
    assert gradient_norm(gradient) == pytest.approx(math.hypot(*gradient[1:]))


def test_learner_learns_and_an_absurd_rate_shows():
    pairs = count_pairs(TEXT)
    assert a_learner(0).loss(pairs) == pytest.approx(pairs.total() * math.log(256))
    assert a_learner(40).loss(pairs) < a_learner(0).loss(pairs) / 2
    blown_up = a_learner(1)
    blown_up.update(blown_up.gradient(pairs), 1, {"matrix": 1e12, "other": 1e12}, {})
    assert not math.isfinite(blown_up.loss(pairs))


def test_state_round_trips_with_its_digests():
    learner = a_learner()
    state = learner.dump()
    other = Learner(Optimizer())
    assert digest_state(other.dump()) != digest_state(state)
    other.load(state)
    assert other.dump() == state
    assert digest_state(other.dump()) == digest_state(state)


def test_pairs_count_each_target_once():
    pairs = count_pairs([b"abab"])
    assert pairs == Counter({(1, ord("b")): 2, (2, ord("a")): 1})


def test_sum_over_ranks_is_taken_in_rank_order():
    parts = [array("d", [1e16]), array("d", [1.0]), array("d", [-1e16])]
    _, payload = _add([({}, part.tobytes()) for part in parts])
    assert list(array("d", payload)) == [(1e16 + 1.0) - 1e16]


def test_log_on_a_full_disk_keeps_its_lines_for_later(tmp_path):
    log = LineLog(Path("/dev/full"))
    log.append("first")
    log.append("second")
    target = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(target, log._fd)
    log.append("third")
    assert (tmp_path / "log").read_text() == "first\nsecond\nthird\n"
    os.close(target)
    os.close(log._fd)


def test_log_goes_on_after_the_part_of_a_line_that_was_written(tmp_path):
    os.mkfifo(tmp_path / "log")
    # A pipe takes what it has room for, as a disk does that is nearly full.
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    log = LineLog(tmp_path / "log")
    os.set_blocking(log._fd, False)
    log.append("a" * 100_000)
    first = os.read(reader, 1_000_000)
    assert 0 < len(first) < 100_000
    log.append("b")
    assert first + os.read(reader, 1_000_000) == b"a" * 100_000 + b"\nb\n"
    os.close(reader)
    os.close(log._fd)


class Desk:
    """A saver with everything it needs, in this process."""

    def __init__(self, path: Path, **options: object) -> None:
        self.run = Run(path, MINIMAL, **options)
        self.settings = Settings(
            run_dir=path,
            run_uid=RUN_UID,
            epoch=1,
            attempt=3,
            rank=0,
            ranks=2,
            host="127.0.0.1",
            port=1,
            plan_sha=self.run.plan.sha,
            restore=Restore.NONE,
            highest_step=0,
            config=self.run.config,
        )
        self.settings.rank_dir.mkdir(parents=True)
        self.telemetry = Telemetry(self.settings)
        self.saver = Saver(self.settings, self.telemetry)

    def snapshot(self, step: int, plan: Plan | None = None) -> Snapshot:
        state = a_learner(step // 10).dump()
        plan = plan or self.run.plan
        manifest = Manifest(
            run_uid=RUN_UID,
            attempt=3,
            line="main",
            step=step,
            plans=[self.run.plan] if plan == self.run.plan else [self.run.plan, plan],
            ledger_head=EMPTY_HEAD,
            cursors=cursors_at(plan, step),
            rng="none",
            mesh={"ranks": 2},
            code="c",
            last_loss=(1.0).hex(),
            arrays=digest_state(state),
            files=[],
        )
        return Snapshot(manifest, state)

    def save(self, *steps: int) -> str:
        failure = ""
        for step in steps:
            self.saver.begin(self.snapshot(step))
            failure = self.saver.wait()
        return failure

    def place(self, step: int) -> Place:
        return Place((self.settings.run_dir / checkpoint_dir("main", step)).parent, step)


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path / "run", total_steps=400)


def test_save_can_be_loaded_and_is_verified(desk):
    assert desk.save(20) == ""
    place = desk.place(20)
    manifest = load_manifest(place)
    assert load_state(place, manifest) == desk.snapshot(20).state
    assert place.is_verified()
    assert desk.saver.saved_step == 20


def flips(root: Path, count: int) -> list[tuple[Path, int]]:
    """Return (file, bit) of `count` flips: 10 in each kind of file, the rest over all bytes."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    kinds = [
        [f for f in files if f.suffix == ".f32"],
        [f for f in files if f.name == MANIFEST_FILE],
    ]
    source = random.Random(7)
    chosen = [source.choice(kind) for kind in kinds for _ in range(10)]
    sizes = [path.stat().st_size for path in files]
    chosen += source.choices(files, weights=sizes, k=count - len(chosen))
    return [(path, source.randrange(8 * path.stat().st_size)) for path in chosen]


def test_no_flipped_bit_of_two_hundred_is_restored_silently(desk):
    desk.save(20)
    place = desk.place(20)
    for path, bit in flips(place.path, 200):
        whole = path.read_bytes()
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(Damage, match=path.name):
            load_state(place, load_manifest(place))
        path.write_bytes(whole)
    load_state(place, load_manifest(place))


def test_retention_keeps_the_newest_verified_and_the_permanent_ones(tmp_path):
    options = {"every_steps": 10, "keep": 2, "permanent_every_steps": 30}
    run = Desk(tmp_path / "probe").run
    checkpointing = run.config.checkpointing.model_copy(update=options)
    desk = Desk(tmp_path / "run", total_steps=400, checkpointing=checkpointing)
    desk.save(10, 20, 30, 40)
    assert desk.run.checkpoint_steps() == [30, 40]
    mark_quarantined(desk.place(40), "test", 3)
    desk.save(50)
    # The quarantined one does not count: 30 and 50 are the two that may be used.
    assert desk.run.checkpoint_steps() == [30, 40, 50]
    desk.save(60, 70)
    assert desk.run.checkpoint_steps() == [30, 40, 60, 70]
    desk.place(70).verified.unlink()
    desk.save(80)
    assert desk.run.checkpoint_steps() == [30, 40, 60, 70, 80]


def test_same_state_is_not_written_again(desk):
    desk.save(20)
    before = desk.place(20).path.stat().st_ino
    desk.place(20).verified.unlink()
    assert desk.save(20) == ""
    assert desk.place(20).path.stat().st_ino == before
    assert desk.place(20).is_verified()


def test_another_state_at_the_same_step_is_moved_aside_with_its_reason(desk):
    desk.save(20)
    place = desk.place(20)
    path = place.path / STATE_DIR / "bias" / "value.f32"
    path.write_bytes(bytes(len(path.read_bytes())))
    assert desk.save(20) == ""
    aside = place.line_path / ".quarantine"
    mark = read_quarantine_mark((aside / "20-a3.quarantined.json").read_bytes())
    assert "bias/value.f32" in mark.reason
    assert (aside / "20-a3").is_dir()
    assert not place.quarantined.exists()
    assert place.is_verified()


def test_crash_between_the_two_moves_of_a_quarantine_is_repaired(desk):
    desk.save(20)
    place = desk.place(20)
    mark_quarantined(place, "test", 2)
    place.path.rename(desk.settings.run_dir / "elsewhere")
    assert desk.save(20) == ""
    assert place.is_usable()
    assert place.is_verified()


def test_failed_save_is_counted_by_its_reason_and_leaves_the_last_good_one(desk):
    desk.save(20)
    work = desk.place(20).line_path / ".work"
    work.rmdir()
    work.write_bytes(b"")
    assert "20" in str(desk.run.checkpoint_steps())
    assert desk.save(30) != ""
    assert desk.run.verified_steps() == [20]
    assert desk.saver.saved_step == 20
    assert 'failures_total{reason="other"} 1.0' in desk.telemetry.render()
    work.unlink()
    assert desk.save(30) == ""


def test_save_that_outlives_its_deadline_is_given_up_and_never_published(tmp_path, monkeypatch):
    probe = Desk(tmp_path / "probe")
    limits = probe.run.config.limits.model_copy(update={"commit_s": 1})
    desk = Desk(tmp_path / "run", total_steps=400, limits=limits)
    # An fsync that does not return stands for a disk that does not answer.
    gate = threading.Event()
    monkeypatch.setattr("minimal.saver.sync_dir", lambda path: gate.wait())
    assert "longer than 1 s" in desk.save(20)
    thread = next(t for t in threading.enumerate() if t.name == "save")
    monkeypatch.undo()
    gate.set()
    thread.join(10)
    assert desk.run.checkpoint_steps() == []
    assert desk.save(30) == ""


def test_phase_seconds_sum_to_the_time_since_the_start(desk):
    telemetry = desk.telemetry
    for phase in (Phase.RENDEZVOUS, Phase.STEP, Phase.EVAL, Phase.STEP):
        telemetry.enter(phase)
    before_s = time.monotonic()
    lines = telemetry.render().splitlines()
    after_s = time.monotonic()
    seconds = [float(line.split()[1]) for line in lines if "phase_seconds_total{" in line]
    started_s = telemetry._started_s
    assert before_s - started_s <= sum(seconds) + 1e-6 <= after_s - started_s + 2e-6
    assert telemetry.phase is Phase.STEP


def test_step_deadline_follows_slow_steps(desk):
    telemetry = desk.telemetry
    telemetry.enter(Phase.STEP)
    floor = telemetry.deadline_s
    for step in range(200):
        telemetry.note_step(step, 10.0)
    assert telemetry.deadline_s == max(floor, 5 * 10.0)
