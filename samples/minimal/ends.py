"""How a rank leaves: with its own words in detail.json, by `os._exit`, never through cleanup."""

import os
import sys
from pathlib import Path
from typing import NoReturn

from contract.exits import Exit
from contract.wire import DETAIL_FILE, EndDetail
from minimal.files import write_atomic


class End(Exception):
    """The rank must leave with `code`; `text` says why in one line."""

    def __init__(self, code: Exit, text: str) -> None:
        self.code = code
        super().__init__(text)


def leave(code: Exit, text: str, *, step: int, rank_dir: Path | None) -> NoReturn:
    """Record the end and leave at once.

    `os._exit`, because a rank that lost its peers or hangs in a thread cannot be unwound, and
    because the controller must see this code and no other.
    """
    try:
        if code is not Exit.DONE:
            sys.stderr.write(f"step {step}: {text} (exit {code.value} {code.name})\n")
            if rank_dir is not None:
                detail = EndDetail(step=step, text=text)
                write_atomic(rank_dir / DETAIL_FILE, detail.model_dump_json().encode())
        sys.stderr.flush()
    except OSError:
        pass  # a full disk must not change the exit code
    os._exit(code)
