import json
import subprocess
import sys

import pytest

from contract.exits import Exit
from contract.wire import DETAIL_FILE
from trainer.ends import write_detail

LEAVE = """
import atexit, pathlib, threading
from contract.exits import Exit
from trainer.ends import leave
atexit.register(lambda: print("a shutdown that could hang"))
# A thread that would keep a normal exit waiting for ever.
threading.Thread(target=threading.Event().wait).start()
print("last words", end="")
leave(pathlib.Path({folder!r}), Exit.{name}, step=12, text={text!r})
"""


def run_leave(folder, name, text):
    script = LEAVE.format(folder=str(folder), name=name, text=text)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", ["DRAINED", "NON_FINITE", "STALL"])
def test_rank_leaves_with_its_code_its_words_and_no_shutdown(tmp_path, name):
    end = run_leave(tmp_path, name, "data/x.txt: gone")
    assert end.returncode == Exit[name]
    assert end.stdout == "last words"
    detail = json.loads((tmp_path / DETAIL_FILE).read_text())
    assert detail == {"step": 12, "text": "data/x.txt: gone"}
    if name != "DRAINED":
        assert "data/x.txt: gone" in end.stderr


def test_done_leaves_no_detail(tmp_path):
    assert run_leave(tmp_path, "DONE", "").returncode == 0
    assert not (tmp_path / DETAIL_FILE).exists()


def test_detail_that_cannot_be_written_does_not_stop_the_end(tmp_path):
    (tmp_path / DETAIL_FILE).mkdir()
    write_detail(tmp_path, step=1, text="words")
    assert run_leave(tmp_path, "ERROR", "words").returncode == Exit.ERROR
