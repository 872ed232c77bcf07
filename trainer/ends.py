"""How a rank ends: its own words first, then the exit code, never through a shutdown that can hang.

A distributed runtime's normal exit waits for all peers; after the loss of one it aborts much
later. So every end of a rank goes through `leave`.
"""

import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

from contract.exits import PLANNED, Exit, describe_exit
from contract.wire import DETAIL_FILE, EndDetail

LOG = logging.getLogger(__name__)


class End(Exception):
    """The rank ends with `code`; `text` names the cause and its subject."""

    def __init__(self, code: Exit, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(f"{describe_exit(code)}: {text}")


def leave(rank_dir: Path | None, code: Exit, *, step: int, text: str) -> NoReturn:
    """Write the detail file and a line on stderr, flush, and end the process at once."""
    words = text or describe_exit(code)
    if rank_dir is not None and code is not Exit.DONE:
        write_detail(rank_dir, step=step, text=words)
    level = logging.INFO if code in PLANNED else logging.ERROR
    LOG.log(level, "%s at step %d. %s", describe_exit(code), step, text)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def write_detail(rank_dir: Path, *, step: int, text: str) -> None:
    """Leave the rank's own words; on a full disk they are on stderr only."""
    path = rank_dir / DETAIL_FILE
    data = EndDetail(step=step, text=text).model_dump_json()
    try:
        waiting = path.with_name(f".{path.name}.{os.getpid()}")
        waiting.write_text(data)
        waiting.replace(path)
    except OSError as error:
        LOG.error("%s: %s", path, error.strerror)
