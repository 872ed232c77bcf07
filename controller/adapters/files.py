"""Files of a run: written whole or not at all, and a run directory that knows who it is."""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from contract.wire import IDENTITY_FILE, Identity
from controller.adapters.system import port_errors
from controller.ports import Damaged, Refused, Unavailable

Stamp = tuple[int, int, int] | None
"""What changes when a file does: (inode, modification time in ns, size); None: no file."""


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a file, None when there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)


@contextlib.contextmanager
def open_file(path: Path) -> Generator[BinaryIO]:
    """Open a file for reading, without waiting: opening a pipe waits for its other end.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_or_none(path: Path) -> bytes | None:
    """Return the file's bytes, None when there is no such file; raises OSError as `open_file`."""
    try:
        return read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_file(path: Path) -> bytes:
    """Return the file's bytes; raises OSError as `open_file`."""
    with open_file(path) as file:
        return file.read()


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace the file in one step: others see the old bytes or the new ones.

    Raises:
        Unavailable: the disk is full, or the directory cannot be written.
    """
    staged = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    with port_errors(f"cannot write {path.name}"):
        try:
            write_new(staged, data, durable=durable)
            staged.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                staged.unlink()
            raise
        if durable:
            sync_directory(path.parent)


def write_once(path: Path, data: bytes) -> bool:
    """Create the file with all its bytes; return False when it was there already.

    Raises:
        Unavailable: the disk is full, or the directory cannot be written.
    """
    staged = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    with port_errors(f"cannot write {path.name}"):
        try:
            write_new(staged, data, durable=True)
            # Unlike a rename, a link fails where the name is taken.
            path.hardlink_to(staged)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                staged.unlink()
        sync_directory(path.parent)
    return True


def write_new(path: Path, data: bytes, *, durable: bool) -> None:
    """Create the file, exclusively."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_number(name: str) -> bool:
    """Return whether a name is a number as we write it: `²` and `007` are not."""
    return name.isascii() and name.isdigit() and name == str(int(name))


def numbered(directory: Path) -> list[int]:
    """Return the sorted numbers that name directories in `directory`; empty when it is missing."""
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return []
    return sorted(
        int(entry.name) for entry in entries if is_number(entry.name) and is_folder(entry)
    )


def is_folder(entry: "os.DirEntry[str]") -> bool:
    """Return whether an entry is a directory; a link that leads in a circle is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def read_identity(run_dir: Path) -> Identity:
    """Return who the run directory belongs to.

    Raises:
        Unavailable: there is no identity file: no run was ever launched here.
        Damaged: the file is not an identity.
    """
    data = read_or_none(run_dir / IDENTITY_FILE)
    if data is None:
        raise Unavailable(f"{run_dir} holds no run: {IDENTITY_FILE} is missing")
    try:
        return Identity.model_validate_json(data)
    except ValidationError as error:
        raise Damaged(f"{run_dir / IDENTITY_FILE}: {error.errors()[0]['msg']}") from error


def check_identity(run_dir: Path) -> Identity:
    """Return the identity of a run directory that is the original.

    A moved directory keeps its inode and is the original; a copy has another inode, and while it
    is unclear which of the two lives, none is touched.

    Raises:
        Refused: the directory is a copy.
    """
    identity = read_identity(run_dir)
    if run_dir.stat().st_ino != identity.inode:
        home = Path(identity.directory)
        # Shown only where it is not the default: what people copy must work as it stands.
        place = "" if run_dir.parent == Path("runs") else f" --runs-dir {run_dir.parent}"
        raise Refused(
            f"{run_dir} is a copy of run {identity.name}, launched in {home}; it can be read, not"
            f" steered. Next: ctl status {home.name} --runs-dir {home.parent}, or, if that one is"
            f" gone: ctl resume {run_dir.name} --adopt-copy{place}"
        )
    return identity


def adopt_identity(run_dir: Path) -> Identity:
    """Make this directory the original, as the owner says; the other must be gone or idle."""
    place = {"directory": str(run_dir.resolve()), "inode": run_dir.stat().st_ino}
    identity = read_identity(run_dir).model_copy(update=place)
    write_atomically(run_dir / IDENTITY_FILE, identity.model_dump_json().encode())
    return identity
