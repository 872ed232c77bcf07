"""A rank that does what files in its directory say: `freeze`, or `leave` with an exit code."""

import os
import signal
import threading
from pathlib import Path

FOLDER = Path(os.environ["STEERSMAN_RUN_DIR"]) / (
    f"attempts/{os.environ['STEERSMAN_ATTEMPT']}/rank-{os.environ['STEERSMAN_RANK']}"
)

pause = threading.Event()
while True:
    if (FOLDER / "freeze").exists():
        (FOLDER / "freeze").unlink()
        os.kill(os.getpid(), signal.SIGSTOP)
    if (FOLDER / "leave").exists():
        os._exit(int((FOLDER / "leave").read_text()))
    pause.wait(0.01)
