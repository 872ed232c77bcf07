"""Canonical JSON and its sha256: the identity of plans, manifests and ledger records."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import cast

SEAL = "sha256"
"""Name of the member that holds the digest of all other members of a sealed document."""


class SealError(ValueError):
    """A sealed document is not what was sealed."""


def encode_canonical(value: object) -> bytes:
    """Return UTF-8 JSON with sorted keys and no spaces; a float is a programming error."""
    _refuse_floats(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def _refuse_floats(value: object) -> None:
    # Most members are of these; the test for a Mapping is slow.
    if value is None or isinstance(value, str | int):
        return
    assert not isinstance(value, float), f"a float in canonical JSON: {value!r}"
    if isinstance(value, Mapping):
        for member in cast("Mapping[str, object]", value).values():
            _refuse_floats(member)
    elif isinstance(value, list | tuple):
        for member in cast("Sequence[object]", value):
            _refuse_floats(member)


def hash_bytes(data: bytes) -> str:
    """Return the sha256 of `data` in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def hash_canonical(value: object) -> str:
    """Return the sha256 of the canonical JSON of `value`."""
    return hash_bytes(encode_canonical(value))


def seal(document: Mapping[str, object]) -> bytes:
    """Return canonical JSON of `document` with a `sha256` member over all the others."""
    assert SEAL not in document, "the document is sealed already"
    return encode_canonical({**document, SEAL: hash_canonical(dict(document))})


def unseal(data: bytes) -> dict[str, object]:
    """Return the document without its seal.

    Raises:
        SealError: `data` is not JSON, not an object, not in canonical form or does not match
            its seal; so a change of any byte is found.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SealError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise SealError("not a JSON object")
    members = cast("dict[str, object]", document)
    claimed = members.pop(SEAL, None)
    try:
        sealed = seal(members)
    except (AssertionError, UnicodeEncodeError, RecursionError) as error:
        raise SealError(f"not canonical JSON: {error}") from error
    if sealed != data:
        raise SealError(f"sha256 {claimed!r} does not match the content")
    return members
