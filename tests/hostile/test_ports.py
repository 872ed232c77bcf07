"""Ports that others have: passed over, or named; a gang that loses its own takes another."""

import socket
from contextlib import ExitStack

import pytest

from controller.adapters import local
from controller.ports import Unavailable
from tests.e2e.harness import Ctl
from tests.waiting import wait_for


@pytest.fixture
def ctl(tmp_path):
    ctl = Ctl(tmp_path)
    yield ctl
    ctl.end_everything()


def test_range_that_is_exhausted_is_named_with_its_bounds(monkeypatch):
    with ExitStack() as stack:
        first = stack.enter_context(socket.create_server((local.HOST, 0))).getsockname()[1]
        monkeypatch.setattr(local, "FIRST_PORT", first)
        monkeypatch.setattr(local, "PORTS", 1)
        with pytest.raises(Unavailable) as caught:
            local._free_port(7)
    assert f"between {first} and {first}: Address already in use" in str(caught.value)
    assert "Next: ss" in str(caught.value)
    assert local._free_port(7) == first


def test_port_of_a_server_on_all_addresses_is_passed_over():
    first = local._free_port(11)
    with socket.create_server(("", first)):
        assert local._free_port(11) != first


def test_machine_without_that_address_is_told_so(monkeypatch):
    # An address for documentation (RFC 5737): no machine has it.
    monkeypatch.setattr(local, "HOST", "192.0.2.1")
    with pytest.raises(
        Unavailable, match=r"no free port of 192\.0\.2\.1 .*Cannot assign requested"
    ):
        local._free_port(7)


@pytest.mark.faults
def test_gang_whose_port_is_taken_before_it_binds_takes_another(ctl):
    ctl.write_run_file(num_steps=26)
    ctl("launch", "run.yaml", "--detach")
    path = ctl.run_dir / "attempts" / "1" / local.COORDINATOR_FILE
    wait_for(lambda: path.exists() and path.read_text(), 20, "the coordinator's port")
    host, _, port = path.read_text().rpartition(":")
    with socket.create_server((host, int(port))):
        wait_for((ctl.run_dir / "attempts" / "2").exists, 60, "the next attempt")
        said = ctl("launch", "run.yaml")
    summary = ctl.summary()
    assert summary["outcome"] == "completed", said
    assert summary["attempts"] == 2
    (incident,) = summary["incidents"]
    assert (incident["root_rank"], incident["code"]) == (0, 1)
    words = (ctl.run_dir / "attempts" / "1" / "rank-0" / "detail.json").read_text()
    assert f"cannot serve the gang on {host}:{port}: Address already in use" in words
    second = (ctl.run_dir / "attempts" / "2" / local.COORDINATOR_FILE).read_text()
    assert second != f"{host}:{port}"
