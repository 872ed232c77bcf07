"""What the owner asked for: one file per wish, dropped by the command line."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from contract.canonical import encode_canonical
from contract.wire import INTENTS_DIR
from controller.adapters.files import read_or_none, write_once
from controller.adapters.system import port_errors
from controller.core.snapshot import OwnerIntent
from controller.ports import Refused

SUFFIX = ".json"
NONCE = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")

log = logging.getLogger(__name__)


class IntentFiles:
    """Reads `intents/NONCE.json`; each file is parsed once."""

    def __init__(self, run_dir: Path) -> None:
        self._directory = run_dir / INTENTS_DIR
        self._parsed: dict[str, OwnerIntent | None] = {}

    def read(self, known: Sequence[str]) -> list[OwnerIntent]:
        """Return the intents whose nonce is not in `known`, oldest first.

        A file that is no intent is left alone and named in the log once; it blocks no other.

        Raises:
            Unavailable: the directory cannot be read.
        """
        recorded = set(known)
        with port_errors("cannot read the intents"):
            # Files only: a directory would fail to be read, and a pipe would hold everybody up.
            paths = [path for path in self._directory.glob(f"*{SUFFIX}") if path.is_file()]
            nonces = {path.name.removesuffix(SUFFIX) for path in paths}
            found = [self._parse(nonce) for nonce in nonces - recorded if NONCE.fullmatch(nonce)]
        intents = [intent for intent in found if intent is not None]
        return sorted(intents, key=lambda intent: (intent.wall_ms, intent.nonce))

    def _parse(self, nonce: str) -> OwnerIntent | None:
        if nonce not in self._parsed:
            data = read_or_none(self._directory / f"{nonce}{SUFFIX}")
            self._parsed[nonce] = _read_intent(nonce, data or b"")
        return self._parsed[nonce]


def _read_intent(nonce: str, data: bytes) -> OwnerIntent | None:
    try:
        intent = OwnerIntent.model_validate_json(data)
    except ValidationError as error:
        log.warning("intent %s is ignored: %s", nonce, error.errors()[0]["msg"])
        return None
    if intent.nonce != nonce:
        log.warning("intent %s is ignored: it says nonce %s", nonce, intent.nonce)
        return None
    return intent


def drop_intent(run_dir: Path, intent: OwnerIntent) -> None:
    """Ask the run's controller for something, once: it appears whole or not at all.

    Raises:
        Refused: this nonce was used before.
        Unavailable: the disk is full, or the directory cannot be written.
    """
    assert NONCE.fullmatch(intent.nonce), intent.nonce
    directory = run_dir / INTENTS_DIR
    with port_errors("cannot write the intent"):
        directory.mkdir(exist_ok=True)
    data = encode_canonical(intent.model_dump(mode="json"))
    if not write_once(directory / f"{intent.nonce}{SUFFIX}", data):
        raise Refused(f"intent {intent.nonce} exists already")
