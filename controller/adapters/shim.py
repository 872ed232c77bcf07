"""Starts one rank, waits for it, and records how it ended.

Run by file path with `python -I -S`: standard library only, no site-packages, so that it starts in
some 20 ms and stays small. It lives in a session of its own and ignores the signals of a
terminal, so neither Ctrl-C nor the controller's death reaches the rank.

    shim.py RUN_DIR ATTEMPT RANK EPOCH COMMAND...

The order is the fence: lock first, then look for `closed`, then claim, then start. The controller
writes `closed` first and then looks at the lock; whatever the timing, one sees the other.
"""

import contextlib
import fcntl
import json
import os
import signal
import sys
import time

# The names of contract.wire and of the ledger, which cannot be imported here; a test compares.
LOCK_FILE = "lock"
CLAIM_FILE = "claim.json"
EXIT_FILE = "exit.json"
EXIT_BYTES = 256
CLOSED_FILE = "closed"
STDOUT_FILE = "stdout.log"
STDERR_FILE = "stderr.log"
LEDGER_DIR = "ledger"
SIGNAL_BASE = 128

OWN_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE)
LOCK_TRIES = 100
LOCK_PAUSE_S = 0.01
"""A look at the lock holds it for microseconds; only another shim holds it for a second."""

STARTED = 0
LOCKED = 3
"""Another shim or its rank lives: starting twice equals starting once."""
FENCED = 4
"""The attempt is closed, claimed before, or a newer controller took over."""
NO_COMMAND = 127


def main(arguments: list[str]) -> int:
    """Run the rank named by `arguments` to its end and return the shim's own exit code."""
    run_dir, attempt, rank, epoch, *command = arguments
    rank_dir = f"{run_dir}/attempts/{attempt}/rank-{rank}"
    os.chdir(run_dir)
    for number in OWN_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    lock = take_lock(f"{rank_dir}/{LOCK_FILE}")
    if lock is None:
        return LOCKED
    if is_fenced(run_dir, attempt, rank_dir, int(epoch)):
        return FENCED
    exit_file = reserve_exit_record(f"{rank_dir}/{EXIT_FILE}")
    gate, opener = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(opener)
        run_rank(rank_dir, command, gate=gate, lock=lock)
    os.close(gate)
    claim(rank_dir, attempt=int(attempt), rank=int(rank), epoch=int(epoch), process=process)
    open_gate(opener)
    _, status = os.waitpid(process, 0)
    record_exit(exit_file, status)
    return STARTED


def take_lock(path: str) -> int | None:
    """Return a descriptor that holds the rank's lock, None when another one holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_S)
        else:
            return descriptor
    return None


def is_fenced(run_dir: str, attempt: str, rank_dir: str, epoch: int) -> bool:
    """Return whether this rank must not be started (any more)."""
    in_attempt = {entry.name for entry in os.scandir(f"{run_dir}/attempts/{attempt}")}
    in_rank = {entry.name for entry in os.scandir(rank_dir)}
    return (
        CLOSED_FILE in in_attempt
        or CLAIM_FILE in in_rank
        or newest_epoch(f"{run_dir}/{LEDGER_DIR}") > epoch
    )


def newest_epoch(ledger_dir: str) -> int:
    """Return the highest epoch that owns a ledger segment, 0 for none."""
    try:
        names = [entry.name for entry in os.scandir(ledger_dir)]
    except FileNotFoundError:
        return 0
    epochs = [name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl")]
    return max((int(epoch) for epoch in epochs if epoch.isascii() and epoch.isdigit()), default=0)


def reserve_exit_record(path: str) -> int:
    """Return a descriptor of a file of blanks, so that a full disk cannot lose the end."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.pwrite(descriptor, b" " * EXIT_BYTES, 0)
    os.fsync(descriptor)
    return descriptor


def run_rank(rank_dir: str, command: list[str], *, gate: int, lock: int) -> None:
    """Become the rank once the gate opens; a shim that died before its claim never opens it."""
    if os.read(gate, 1) != b"1":
        os._exit(FENCED)
    for number in OWN_SIGNALS:
        # Ignored signals stay ignored across exec.
        signal.signal(number, signal.SIG_DFL)
    os.set_inheritable(lock, True)  # noqa: FBT003  # the system call's own form
    for name, target in ((STDOUT_FILE, 1), (STDERR_FILE, 2)):
        log = os.open(f"{rank_dir}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, target)
        os.close(log)
    try:
        os.execvp(command[0], command)  # noqa: S606  # no shell on purpose
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
        os._exit(NO_COMMAND)


def open_gate(opener: int) -> None:
    """Let the rank run, unless it was killed while it waited: that end is recorded, too."""
    with contextlib.suppress(BrokenPipeError):
        os.write(opener, b"1")
    os.close(opener)


def claim(rank_dir: str, *, attempt: int, rank: int, epoch: int, process: int) -> None:
    """Write who runs the rank, once and for all."""
    document = {
        "format": 1,
        "attempt": attempt,
        "rank": rank,
        "epoch": epoch,
        "shim": identity_of(os.getpid()),
        "process": identity_of(process),
        "wall_s": time.time(),
    }
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(f"{rank_dir}/{CLAIM_FILE}", flags, 0o644)
    os.write(descriptor, json.dumps(document).encode())
    os.fsync(descriptor)
    os.close(descriptor)


def identity_of(pid: int) -> dict[str, object]:
    """Return pid, start time and boot: a later process of the same number differs."""
    stat = read(f"/proc/{pid}/stat")
    boot_id = read("/proc/sys/kernel/random/boot_id").strip()
    # The name in parentheses may hold anything; the start time is field 22, 20th behind it.
    return {"pid": pid, "start_ticks": int(stat.rpartition(")")[2].split()[19]), "boot_id": boot_id}


def read(path: str) -> str:
    """Return the text of a small file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096).decode(errors="replace")
    finally:
        os.close(descriptor)


def record_exit(descriptor: int, status: int) -> None:
    """Overwrite the blanks in place with the rank's code and signal, durably."""
    code = os.waitstatus_to_exitcode(status)
    number = -code if code < 0 else None
    document = {
        "format": 1,
        "code": SIGNAL_BASE + number if number else code,
        "signal": number,
        "wall_s": time.time(),
        "detail": "",
    }
    os.pwrite(descriptor, json.dumps(document).ljust(EXIT_BYTES).encode(), 0)
    os.fsync(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
