"""Which code this is: replays are compared only where it is equal."""

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("contract", "trainer")
DIGITS = 16


def hash_code() -> str:
    """Return the first digits of the sha256 over names and bytes of both packages' modules."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            digest.update(str(path.relative_to(ROOT)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:DIGITS]
