"""Who asks: the name that stands beside a wish in the ledger."""

import getpass
import os

MAX_CHARS = 64


def name_user() -> str:
    """Return the user's name, whatever the machine knows of it: at most 64 printable characters.

    Without an entry for this user (a container's arbitrary uid) it is `uid-N`.
    """
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):
        name = ""
    safe = name.encode(errors="replace").decode()
    return "".join(filter(str.isprintable, safe))[:MAX_CHARS].strip() or f"uid-{os.getuid()}"
