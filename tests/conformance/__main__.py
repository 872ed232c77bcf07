"""Try the suite on a trainer of your own: python -m tests.conformance --trainer "COMMAND"."""

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from contract import __version__
from tests.conformance.harness import ENV_START_S, ENV_STEP_S, ENV_TRAINER, ROOT

FOR_PEOPLE = ("--rootdir", str(ROOT), "--tb=short", "-p", "no:cacheprovider")
OURS_ALONE = "not slow_trainer"
"""Cases that tell two stories in one start, as ours takes long to start; theirs gets each alone."""
UNUSABLE = 2


def main() -> int:
    """Run the suite on the command line's trainer; return pytest's exit code, 0 when it conforms.

    The variable is set before pytest imports the list of trainers.
    """
    known, rest = parse()
    command = absolute(shlex.split(known.trainer))
    if not command or shutil.which(command[0]) is None:
        sys.stderr.write(f'--trainer is "{known.trainer}"; it must begin with a program\n')
        return UNUSABLE
    os.environ[ENV_TRAINER] = shlex.join(command)
    os.environ |= {ENV_START_S: str(known.start_s), ENV_STEP_S: str(known.step_s)}
    os.chdir(ROOT)  # so that cases are named by their place in the repository
    code = int(pytest.main([*FOR_PEOPLE, "-k", OURS_ALONE, str(Path(__file__).parent), *rest]))
    sys.stderr.write(f"{VERDICTS.get(code, 'the suite did not run')} (contract {__version__})\n")
    return code


VERDICTS = {
    0: "the trainer conforms",
    1: "the trainer does not conform: each failed case is a sentence of docs/contract.md;"
    " what was seen, and the last words of ranks that ended too soon, are in its message",
}


PATIENCE = (
    ("--start-s", 180.0, "time from its start to its first step"),
    ("--step-s", 1.0, "step, with a save or an evaluation"),
)


def parse() -> tuple[argparse.Namespace, list[str]]:
    """Return our options, and those that go to pytest as they are."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description=__doc__,
        epilog="All other options go to pytest: -x ends at the first failure, -k NAME chooses"
        " cases, -n 2 runs two at a time.",
    )
    parser.add_argument("--trainer", required=True, help="the command that starts one rank")
    for name, default, what in PATIENCE:
        words = f"the longest {what}, in seconds: what fails to come is waited for that long"
        parser.add_argument(name, type=float, default=default, help=f"{words}; {default:g}")
    return parser.parse_known_args()


def absolute(command: list[str]) -> list[str]:
    """Return the command with the files that it names made absolute: ranks start elsewhere."""
    return [str(Path(word).resolve()) if Path(word).is_file() else word for word in command]


if __name__ == "__main__":
    sys.exit(main())
