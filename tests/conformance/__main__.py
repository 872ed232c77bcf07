"""Try the suite on a trainer of your own: python -m tests.conformance --trainer "COMMAND"."""

import argparse
import os
import sys
from pathlib import Path

import pytest

from tests.conformance.harness import ENV_TRAINER


def main() -> int:
    """Run the suite on the command line's trainer; return pytest's exit code.

    The variable is set before pytest imports the list of trainers.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument(
        "--trainer", required=True, help="the command that starts one rank, in any directory"
    )
    known, rest = parser.parse_known_args()
    os.environ[ENV_TRAINER] = known.trainer
    return pytest.main([str(Path(__file__).parent), *rest])


if __name__ == "__main__":
    sys.exit(main())
