"""Installs the built wheel alone, without JAX, far from this repository, and runs a run with it."""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from contract import __version__

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
INSTALL_S = 300
RUN_S = 180
OF_THE_TRAINER = ("jax", "jaxlib", "optax", "orbax-checkpoint")
INHERITED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CTL_RUNS_DIR")


class Refused(Exception):
    """The wheel does not do what it must; the message says what was seen."""


class Trial:
    """One fresh environment, and a folder that holds the samples and nothing else of ours."""

    def __init__(self, place: Path) -> None:
        self.bin = place / "venv" / "bin"
        self.folder = place / "elsewhere"
        venv.create(place / "venv", with_pip=True)
        shutil.copytree(
            ROOT / "samples", self.folder / "samples", ignore=shutil.ignore_patterns("__pycache__")
        )

    def run(self, *command: str, timeout_s: int = RUN_S) -> str:
        """Return what a command of the environment printed; raise Refused where it failed."""
        kept = {name: value for name, value in os.environ.items() if name not in INHERITED}
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.folder,
            env=kept,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            words = f"{done.stdout[-2_000:]}{done.stderr[-2_000:]}"
            raise Refused(f"{' '.join(command)} ended with {done.returncode}:\n{words}")
        return done.stdout


def find_wheel() -> Path:
    """Return the one wheel of this version under dist/."""
    found = sorted(DIST.glob(f"steersman-{__version__}-*.whl"))
    if len(found) != 1:
        raise Refused(f"{len(found)} wheels of version {__version__} in dist/. Next: make wheels")
    return found[0]


def try_wheel(trial: Trial, wheel: Path) -> None:
    """Install, look, launch, verify."""
    pins = ROOT / "requirements" / "runtime.in"
    install = ("-m", "pip", "install", "--quiet", "--only-binary", ":all:", "-c", str(pins))
    trial.run("python", *install, str(wheel), timeout_s=INSTALL_S)
    listed = trial.run("python", "-m", "pip", "list", "--format", "freeze").lower().splitlines()
    names = {line.partition("==")[0] for line in listed}
    demand(not names & set(OF_THE_TRAINER), f"an accelerator library came along: {sorted(names)}")
    demand(trial.run("ctl", "--version") == f"steersman {__version__}\n", "another version")
    demand("WHEEL[trainer]" in trial.run("ctl", "doctor"), "doctor found a trainer")
    trial.run("ctl", "launch", "samples/minimal.yaml")
    trial.run("ctl", "log", "minimal", "--verify")
    run_dir = trial.folder / "runs" / "minimal"
    summary = (run_dir / "summary.json").read_text()
    demand('"outcome": "completed"' in summary, f"not completed: {summary[:500]}")
    demand((run_dir / "report.html").stat().st_size > 0, "an empty report")


def demand(is_met: bool, otherwise: str) -> None:  # noqa: FBT001  reads as a sentence
    """Raise Refused with `otherwise` unless the condition is met."""
    if not is_met:
        raise Refused(otherwise)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="steersman-wheel-") as place:
        try:
            wheel = find_wheel()
            try_wheel(Trial(Path(place)), wheel)
        except Refused as refused:
            sys.stderr.write(f"the wheel fails its trial: {refused}\n")
            return 1
    sys.stderr.write(
        f"dist/{wheel.name}: installed without JAX, it took samples/minimal.yaml to its end\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
