"""The manifest of a checkpoint and the marks beside it.

`checkpoints/LINE/STEP/` exists once the checkpoint is complete: committed, with a manifest,
after the losses and gradient norms of all contained steps were read and finite. Beside it,
`STEP.verified.json` says that it was read back and was equal, `STEP.quarantined.json` why it
must not be used. All three are sealed, so a change of any byte is found.
"""

from typing import Literal, TypeVar

from pydantic import ValidationError

from contract.canonical import SealError, encode_canonical, hash_bytes, seal, unseal
from contract.plan import Count, Frozen, Name, Plan, PlanError, Sha, check_plan
from contract.wire import LedgerHead

Document = TypeVar("Document", bound=Frozen)


class CheckpointError(ValueError):
    """A manifest or a mark that cannot be trusted."""


class FileDigest(Frozen):
    """One file of the checkpoint, relative to its directory."""

    path: str
    size_bytes: Count
    sha256: Sha


class ArrayDigest(Frozen):
    """One array of the state, digested on the device at the moment of saving.

    Words w_i are the elements' bits zero-extended to uint32 (64-bit: two words, low first), i
    the global element index; s0 = sum w_i, s1 = sum w_i (2i + 1), both mod 2**32. Sums add over
    any partition, so the value is the same on every mesh.
    """

    path: str
    shape: list[Count]
    dtype: str
    s0: Count
    s1: Count


class Manifest(Frozen):
    """What a checkpoint is: where it stands, what it holds, and how to tell damage."""

    format: Literal[1] = 1
    run_uid: str
    attempt: Count
    line: Name
    step: Count
    """Completed steps: the next step to run."""
    plans: list[Plan]
    """The whole chain, genesis first; the last is the plan the checkpoint was made under."""
    ledger_head: LedgerHead
    cursors: dict[Name, Count]
    rng: str
    mesh: dict[str, int]
    code: str
    last_loss: str
    """float.hex() of the loss of step - 1; empty at step 0."""
    arrays: list[ArrayDigest]
    files: list[FileDigest]

    @property
    def plan_sha(self) -> str:
        """The plan the checkpoint was made under."""
        return self.plans[-1].sha


class VerifiedMark(Frozen):
    """The checkpoint with exactly this manifest was read back and was equal."""

    format: Literal[1] = 1
    step: Count
    manifest_sha256: Sha
    attempt: Count


class QuarantineMark(Frozen):
    """The checkpoint must not be used, and why."""

    format: Literal[1] = 1
    step: Count
    reason: str
    attempt: Count
    manifest_sha256: Sha | None = None
    """The manifest as found; None when there was none."""


def encode_sealed(document: Manifest | VerifiedMark | QuarantineMark) -> bytes:
    """Return the bytes of the document's file."""
    return seal(document.model_dump(mode="json"))


def read_manifest(data: bytes) -> Manifest:
    """Return the manifest in `data`.

    Raises:
        CheckpointError: damaged in any byte, or inconsistent.
    """
    manifest = _read(Manifest, data)
    if not manifest.plans:
        raise CheckpointError("manifest: no plan")
    for plan in manifest.plans:
        problems = check_plan(plan)
        if problems:
            raise CheckpointError(f"manifest: {PlanError(problems)}")
    return manifest


def read_verified_mark(data: bytes) -> VerifiedMark:
    """Return the mark in `data`; raises CheckpointError when it is damaged."""
    return _read(VerifiedMark, data)


def read_quarantine_mark(data: bytes) -> QuarantineMark:
    """Return the mark in `data`; raises CheckpointError when it is damaged."""
    return _read(QuarantineMark, data)


def is_verified(manifest_data: bytes, mark_data: bytes | None) -> bool:
    """Return whether the mark vouches for exactly this manifest; a damaged mark does not."""
    if mark_data is None:
        return False
    try:
        mark = read_verified_mark(mark_data)
    except CheckpointError:
        return False
    return mark.manifest_sha256 == hash_bytes(manifest_data)


def _read(kind: type[Document], data: bytes) -> Document:
    try:
        body = unseal(data)
        # From JSON, because strict models take tuples and exact numbers from there only.
        return kind.model_validate_json(encode_canonical(body))
    except SealError as error:
        raise CheckpointError(f"{kind.__name__}: {error}") from error
    except ValidationError as error:
        raise CheckpointError(f"{kind.__name__}: {error.errors()[0]['msg']}") from error
