import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.canonical import SealError, encode_canonical, hash_bytes, seal, unseal
from contract.checkpoint import (
    ArrayDigest,
    CheckpointError,
    FileDigest,
    Manifest,
    QuarantineMark,
    VerifiedMark,
    encode_sealed,
    is_verified,
    read_manifest,
    read_quarantine_mark,
    read_verified_mark,
)
from contract.wire import LedgerHead
from tests.contract.builders import a_horizon, a_plan

MANIFEST = Manifest(
    run_uid="u",
    attempt=3,
    line="main",
    step=160,
    plans=[a_plan(), a_horizon(a_plan(), 150, 300)],
    ledger_head=LedgerHead(seq=2**40, hash="3" * 64),
    cursors={"code": 2**41 + 1, "docs": 5},
    rng="seed 0, step 160",
    mesh={"ranks": 2},
    code="v1",
    last_loss=(2.5).hex(),
    arrays=[ArrayDigest(path="w", shape=[2, 3], dtype="float32", s0=1, s1=2**32 - 1)],
    files=[FileDigest(path="state/w", size_bytes=24, sha256="4" * 64)],
)
MANIFEST_DATA = encode_sealed(MANIFEST)
VERIFIED = VerifiedMark(step=160, manifest_sha256=hash_bytes(MANIFEST_DATA), attempt=3)
QUARANTINE = QuarantineMark(step=160, reason="array w does not match — it is 'ü'", attempt=4)
SEALED = {
    "manifest": (MANIFEST, read_manifest),
    "verified": (VERIFIED, read_verified_mark),
    "quarantined": (QUARANTINE, read_quarantine_mark),
}


@pytest.mark.parametrize("name", SEALED)
def test_sealed_document_round_trips(name):
    document, read = SEALED[name]
    assert read(encode_sealed(document)) == document


@pytest.mark.parametrize("name", SEALED)
@settings(max_examples=200)
@given(data=st.data())
def test_any_changed_byte_of_a_sealed_document_is_found(name, data):
    document, read = SEALED[name]
    raw = bytearray(encode_sealed(document))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CheckpointError):
        read(bytes(raw))


@pytest.mark.parametrize("name", SEALED)
def test_every_single_flipped_bit_of_a_sealed_document_is_found(name):
    document, read = SEALED[name]
    whole = encode_sealed(document)
    # One bit of every byte: all bits of a manifest of some kilobytes would take a minute.
    for index in range(len(whole)):
        raw = bytearray(whole)
        raw[index] ^= 1 << index % 8
        with pytest.raises(CheckpointError):
            read(bytes(raw))


@pytest.mark.parametrize("name", SEALED)
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data + b"\n",
        lambda data: b"[" + data + b"]",
        lambda data: b"{}",
        lambda data: b"\xff" * len(data),
        lambda data: b"\x00" * len(data),
    ],
)
def test_cut_extended_or_replaced_document_is_found(name, damage):
    document, read = SEALED[name]
    with pytest.raises(CheckpointError):
        read(damage(encode_sealed(document)))


def test_document_of_another_kind_is_refused():
    with pytest.raises(CheckpointError):
        read_manifest(encode_sealed(VERIFIED))
    with pytest.raises(CheckpointError):
        read_verified_mark(encode_sealed(QUARANTINE))


def test_sealed_again_with_a_changed_member_is_refused_where_it_is_checked():
    members = unseal(MANIFEST_DATA)
    for changes in ({"plans": []}, {"step": -1}, {"line": "../main"}, {"new": 1}):
        with pytest.raises(CheckpointError):
            read_manifest(seal(members | changes))


def test_manifest_with_an_inconsistent_plan_is_refused():
    broken = MANIFEST.model_copy(update={"plans": [a_plan(effective=5)]})
    with pytest.raises(CheckpointError, match="genesis"):
        read_manifest(encode_sealed(broken))


def test_manifest_names_the_last_plan_of_its_chain():
    assert MANIFEST.plan_sha == MANIFEST.plans[-1].sha


def test_verified_means_a_sound_mark_of_exactly_this_manifest():
    mark = encode_sealed(VERIFIED)
    assert is_verified(MANIFEST_DATA, mark)
    assert not is_verified(MANIFEST_DATA, None)
    assert not is_verified(MANIFEST_DATA + b" ", mark)
    for index in range(0, len(mark), 7):
        damaged = bytearray(mark)
        damaged[index] ^= 1
        assert not is_verified(MANIFEST_DATA, bytes(damaged))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text().filter(lambda name: name != "sha256"), json_values, max_size=4))
def test_any_document_can_be_sealed_and_unsealed(document):
    assert unseal(seal(document)) == document


def test_canonical_json_has_one_form():
    assert encode_canonical({"b": [1, None], "a": "ü"}) == '{"a":"ü","b":[1,null]}'.encode()
    with pytest.raises(AssertionError, match="a float"):
        encode_canonical({"a": [1.0]})


@pytest.mark.parametrize("data", [b'{"a":1}', b'{"sha256":1}', b'{"a":0.5,"sha256":"x"}', b"1"])
def test_unseal_refuses_what_was_never_sealed(data):
    with pytest.raises(SealError):
        unseal(data)
