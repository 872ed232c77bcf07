"""A controller process: started by `launch` and `resume`, in a session of its own.

    python -m controller.cli.steer RUN_DIR

It logs to stderr, which is `controller.log` in the run's directory.
"""

import logging
import sys
from pathlib import Path

from controller.cli import deps
from controller.cli.codes import Code
from controller.ports import PortError
from controller.runtime.loop import Ending

log = logging.getLogger(__name__)

CODES = {Ending.HALTED: Code.FAILED, Ending.EPOCH_LOST: Code.FAILED, Ending.FAILED: Code.FAILED}


def main(arguments: list[str]) -> int:
    """Steer the run in the directory named by `arguments`; return the exit code."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        ending = deps.steer(Path(arguments[0]))
    except PortError as error:
        sys.stderr.write(f"{error}\n")
        return Code.FAILED
    log.info("the controller ends: %s", ending)
    return CODES.get(ending, Code.DONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
