"""Places where files do not behave: small, read-only, another file system, another user's.

Root ignores modes, so it mounts; others set modes and fall back where they may not mount.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65_534


@contextmanager
def mounted(path: Path, options: str) -> Iterator[bool]:
    """Mount a file system in memory at `path`; give False where this user may not."""
    path.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(f"no mount: {done.stderr.strip()}\n")
    try:
        yield not done.returncode
    finally:
        if not done.returncode:
            subprocess.run(["umount", "--lazy", str(path)], check=True)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Let nobody write in the directory, nor anywhere under it."""
    if os.geteuid():
        folders = [path, *(it for it in path.rglob("*") if it.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        yield
        for folder in folders:
            folder.chmod(0o755)
        return
    subprocess.run(["mount", "--bind", str(path), str(path)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(path)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path) -> None:
    """Leave no block free in the file system at `path`."""
    with (path / "ballast").open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)


@contextmanager
def another_file_system(path: Path) -> Iterator[Path]:
    """Give an empty directory on another file system than the temporary folder's."""
    with mounted(path, "size=64m") as is_mounted:
        if is_mounted:
            yield path
            return
        yield path  # the same one: the paths are taken all the same


@contextmanager
def as_nobody() -> Iterator[bool]:
    """Be another user, as whom modes count; give False where this user is one already."""
    if os.geteuid():
        yield False
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield True
    finally:
        os.seteuid(0)
        os.setegid(0)
