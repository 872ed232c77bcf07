"""What a shell holds, and what of it reaches a run: the same bits whatever the shell holds."""

import json
import os
import subprocess
import sys

import pytest

from controller.adapters import environment
from controller.cli.codes import Code
from tests.e2e.harness import ROOT, Ctl
from tests.hostile.places import mounted

NOWHERE = "127.0.0.1:1"
WITHHELD = {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    "LIBTPU_INIT_ARGS": "--xla_tpu_x=1",
    "JAX_ENABLE_X64": "1",
    "JAX_DISABLE_JIT": "1",
    "JAX_NUM_PROCESSES": "9",
    "JAX_COORDINATOR_ADDRESS": NOWHERE,
    "JAX_DEFAULT_MATMUL_PRECISION": "bfloat16",
    "PYTHONHASHSEED": "77",
    "PYTHONOPTIMIZE": "2",
    "PYTHONWARNINGS": "default",
    "PYTHONIOENCODING": "ascii",
    "PYTHONUTF8": "0",
}
PASSED = {
    "JAX_PLATFORMS": "cuda",
    "OMP_NUM_THREADS": "1",
    "LD_PRELOAD": "gone.so",
    "TMPDIR": "gone",
    "HOME": "gone",
    "LANG": "tr_TR.UTF-8",
    "LC_ALL": "tr_TR.UTF-8",
    "TZ": "Mars/Phobos",
    "COLUMNS": "zero",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "STEERSMAN_RANK": "99",
    "STEERSMAN_RUN_DIR": "gone",
}
PROXY_NAMES = ("http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "grpc_proxy")
PROXIES = dict.fromkeys(PROXY_NAMES, f"http://{NOWHERE}")


@pytest.mark.parametrize("name", ["PYTHONINSPECT", "PYTHONSTARTUP", "JAX_LOG_COMPILES", *WITHHELD])
def test_variable_that_would_change_a_run_is_withheld_and_named(name):
    assert environment.list_withheld({name: "1", "PATH": "here"}) == [name]
    assert environment.clean({name: "1", "PATH": "here"}) == {"PATH": "here"}


@pytest.mark.parametrize(
    "name", ["JAX_COMPILATION_CACHE_DIR", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", *PASSED]
)
def test_variable_of_the_machine_is_passed_on(name):
    assert environment.list_withheld({name: "1"}) == []
    assert environment.clean({name: "1"}) == {name: "1"}


@pytest.mark.parametrize("name", PROXIES)
def test_ranks_never_meet_through_a_proxy(name):
    cleaned = environment.clean({name: "http://proxy:1", "no_proxy": "example.com,localhost"})
    assert cleaned[name] == "http://proxy:1"
    assert cleaned["no_proxy"] == "example.com,localhost,127.0.0.1,::1"
    assert cleaned["NO_PROXY"] == cleaned["no_grpc_proxy"] == "127.0.0.1,localhost,::1"


# --- whole runs ---

STEPS = 26


@pytest.fixture
def make_ctl(tmp_path):
    """Makes `ctl` in a folder of its own; nothing of it outlives the test."""
    made = []

    def make(name):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        made.append(Ctl(folder))
        made[-1].write_run_file(num_steps=STEPS)
        made[-1].pace(0.0)
        return made[-1]

    yield make
    for ctl in made:
        ctl.end_everything()


def bits(ctl):
    """Return what may depend on the run file alone."""
    steps = ctl.steps(1)
    assert len(steps) == STEPS
    return [
        [step[name] for name in ("step", "loss", "grad_norm", "lr", "tokens")] for step in steps
    ]


@pytest.mark.faults
def test_run_in_a_disturbed_shell_has_the_bits_of_one_in_a_clean_shell(make_ctl, tmp_path):
    clean, disturbed = make_ctl("clean"), make_ctl("disturbed")
    clean("launch", "run.yaml", "--detach")
    strangers = tmp_path / "strangers"
    strangers.mkdir()
    for name in ("jax", "numpy", "orbax"):
        (strangers / f"{name}.py").write_text("raise SystemExit('a stranger')")
    disturbed.environment |= WITHHELD | PASSED | PROXIES
    disturbed.environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(strangers)])
    out = disturbed("launch", "run.yaml")
    assert "Traceback" not in out
    assert "not for the ranks: JAX_COORDINATOR_ADDRESS, JAX_DEFAULT" in out
    assert "spec.trainer.command: [env, NAME=VALUE, python, ...]" in out
    clean("launch", "run.yaml")  # attaches, or finds it finished
    assert bits(disturbed) == bits(clean)
    assert "completed" in clean("status", "probe")


BARE = """\
import os, resource, sys
for descriptor in (0, 1, 2):
    os.close(descriptor)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
os.umask(0o077)
os.nice(3)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Becomes another command, without what it is used to; a hook of a fork would not do: JAX warns."""


@pytest.mark.faults
def test_run_of_a_command_without_streams_on_another_disk_comes_to_its_end(make_ctl):
    ctl = make_ctl("bare")
    runs = ctl.folder / "runs"
    with mounted(runs, "size=32m"):
        done = subprocess.run(
            [sys.executable, "-c", BARE, *ctl.command("launch", "run.yaml")],
            cwd=ctl.folder, env=ctl.environment, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == Code.DONE, (runs / "probe" / "controller.log").read_text()
        assert ctl.summary()["outcome"] == "completed"
        assert ctl.summary()["ledger_verified"] is True
        assert (runs / "probe").stat().st_mode & 0o077 == 0
        ctl.end_everything()


@pytest.mark.faults
def test_two_launches_of_one_name_at_one_moment_make_one_run(make_ctl):
    ctl = make_ctl("twice")
    ctl.write_run_file("other.yaml", num_steps=STEPS + 10)
    launches = [ctl.start("launch", name, "--detach") for name in ("run.yaml", "other.yaml")]
    said = [launch.communicate(timeout=60) for launch in launches]
    codes = sorted(launch.returncode for launch in launches)
    assert codes[0] == Code.DONE, said
    assert codes[1] in (Code.BAD_INPUT, Code.DIFFERS), said
    assert "Traceback" not in str(said)
    assert [path.name for path in (ctl.folder / "runs").iterdir()] == ["probe"]
    loser = said[0 if launches[0].returncode else 1][1]
    assert "launched meanwhile. Next: ctl status probe" in loser or "differs" in loser
    winner = "run.yaml" if launches[0].returncode == 0 else "other.yaml"
    ctl("launch", winner)
    assert len(list(ctl.run_dir.glob("ledger/*.jsonl"))) in (1, 2)
    assert ctl.status()["attempt"] == 1


def test_package_of_our_name_in_the_way_is_named(tmp_path):
    for name in ("contract.py", "contract/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise SystemExit('a stranger')")
        done = subprocess.run(
            [sys.executable, "-m", "controller.cli.main", "status"], cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == Code.FAILED
        assert f"the package contract is found in {tmp_path}" in done.stderr
        assert "unset PYTHONPATH" in done.stderr
        path.unlink()


@pytest.mark.parametrize("stream", ["0", "1", "2", "0,1,2"])
def test_closed_stream_is_no_trace(stream, tmp_path):
    words = (
        "import os, sys\n"
        f"for number in ({stream},): os.close(number)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'controller.cli.main', 'status'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (Code.DONE, False)


LOCALES = [
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"LC_ALL": "POSIX"},
    {"LC_ALL": "tr_TR.UTF-8"},
    {"LC_ALL": "de_DE.UTF-8"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "utf-16"},
    {"LC_ALL": "xx_YY.garbage"},
]


@pytest.mark.parametrize("locale", LOCALES, ids=str)
def test_locale_changes_no_number_and_no_word(locale, launched, folder):
    status = {
        "state": "training", "reason": "Größe “2.5”", "at": 1, "step": 1_234, "total_steps": 5_000,
        "figures": {"loss": 2.5, "tokens_per_second": 12_345.5, "step_s": 0.125},
    }  # fmt: skip
    (launched / "status.json").write_text(json.dumps(status))
    done = subprocess.run(
        [sys.executable, "-m", "controller.cli.main", "status", "probe"], cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | locale, capture_output=True, check=False,
    )  # fmt: skip
    encoding = "utf-16" if "utf-16" in locale.values() else "utf-8"
    shown = done.stdout.decode(encoding, "replace")
    assert (done.returncode, b"Traceback" in done.stderr) == (Code.BLIND, False), done.stderr
    assert "1,234 of 5,000 (24.7%)" in shown
    assert "12,346 tokens/s, 125 ms a step" in shown
    assert "Größe" in shown or "Gr\\xf6\\xdfe" in shown, shown
