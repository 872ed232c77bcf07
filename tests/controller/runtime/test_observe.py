"""One snapshot from all ports: errors become Unknown, slow ports are asked at their own pace."""

import pytest

from controller.core.readings import Unknown
from controller.core.snapshot import RankTelemetry
from controller.ports import EpochLost
from controller.runtime.observe import Cadence, Observer
from controller.simulate.chaos.faults import READ_PORTS
from controller.simulate.tap import Killer, tap
from tests.controller.runtime.stage import a_stage

FIELDS = {name: name for name in READ_PORTS} | {"fleet": "gang"}


@pytest.fixture
def stage():
    return a_stage().after(60_000)


@pytest.mark.parametrize("port", [name for name in READ_PORTS if name != "telemetry"])
def test_port_that_fails_makes_its_own_field_unknown(stage, port):
    stage.world.blind.add(port)
    snapshot = stage.observer().observe(stage.memory)
    value = getattr(snapshot, FIELDS[port])
    assert value == Unknown(unknown=f"{port} cannot be read")
    others = set(FIELDS.values()) - {FIELDS[port], "telemetry"}
    if port == "fleet":
        others.discard("progress")
    assert not any(isinstance(getattr(snapshot, name), Unknown) for name in others)


def test_telemetry_that_fails_is_unknown_for_each_rank(stage):
    stage.world.blind.add("telemetry")
    readings = stage.observer().observe(stage.memory).telemetry
    assert [reading.rank for reading in readings] == [0, 1, 2]
    assert all(isinstance(reading.value, Unknown) for reading in readings)


def test_progress_of_an_unseen_fleet_is_unknown(stage):
    stage.world.blind.add("fleet")
    snapshot = stage.observer().observe(stage.memory)
    assert isinstance(snapshot.progress, Unknown)
    assert snapshot.telemetry == []


def test_garbage_control_document_is_unknown(stage):
    stage.world.is_garbage = True
    assert isinstance(stage.observer().observe(stage.memory).control, Unknown)


def test_lost_epoch_is_no_reading(stage):
    class Lost:
        def observe(self):
            raise EpochLost("epoch 9 took over")

    observer = stage.observer(fleet=Lost())
    with pytest.raises(EpochLost):
        observer.observe(stage.memory)


def calls_in(stage, passes, step_ms, cadence):
    """Return how often each port was called in so many observations."""
    log = Killer()
    observer = Observer(tap(stage.ports, log), 1, cadence)
    for _ in range(passes):
        observer.observe(stage.memory)
        stage.after(step_ms)
    return {name: log.names.count(name) for name in log.names}


def test_slow_ports_are_asked_at_their_own_pace(stage):
    cadence = Cadence(telemetry_ms=2_000, store_ms=5_000, probe_ms=60_000)
    calls = calls_in(stage, 20, 500, cadence)
    assert calls["fleet.observe"] == 20
    assert calls["telemetry.read"] == 5
    assert calls["checkpoints.observe"] == 2
    assert calls["checkpoints.probe"] == 1


def test_slow_ports_are_asked_at_once_when_the_gang_changes(stage):
    observer = stage.observer()
    observer.observe(stage.memory)
    stage.world.disk_full = True
    assert observer.observe(stage.memory).storage.problem is None
    gang = stage.world.gang
    gang.kill(gang.ranks[1])
    assert observer.observe(stage.memory).storage.problem == "no space left"


def test_probe_comes_sooner_while_no_gang_is_up():
    stage = a_stage(launched=False)
    calls = calls_in(stage, 20, 500, Cadence(probe_idle_ms=5_000))
    assert calls["checkpoints.probe"] == 2
    assert "telemetry.read" not in calls


def test_machine_restart_makes_every_reading_old(stage):
    observer = stage.observer()
    observer.observe(stage.memory)
    stage.world.disk_full = True
    stage.world.agenda.reboot()
    assert observer.observe(stage.memory).storage.problem == "no space left"


def test_living_gang_is_seen_whole(stage):
    snapshot = stage.observer().observe(stage.memory)
    assert snapshot.now == stage.world.agenda.instant()
    assert all(isinstance(reading.value, RankTelemetry) for reading in snapshot.telemetry)
    assert snapshot.progress.completed_steps == 3
    assert snapshot.control.plan_sha == stage.plan.sha
