import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import wire
from contract.wire import (
    ACCOUNT_PHASES,
    RANK_PHASES,
    ControlDocument,
    ControlError,
    ControlRefusal,
    Drain,
    LedgerHead,
    Phase,
    checkpoint_dir,
    line_dir,
    plan_file,
    rank_dir,
    read_control,
)


def a_document(**changes) -> ControlDocument:
    document = ControlDocument(
        run_uid="u",
        epoch=2,
        seq=5,
        plan_sha="a" * 64,
        drain=None,
        ledger_head=LedgerHead(seq=1, hash="b" * 64),
    )
    return document.model_copy(update=changes)


def encode(document: ControlDocument) -> bytes:
    return document.model_dump_json().encode()


def refusal_of(data: bytes, newest: ControlDocument | None = None) -> ControlRefusal:
    with pytest.raises(ControlError) as refused:
        read_control(data, run_uid="u", newest=newest)
    assert str(refused.value).startswith(refused.value.refusal.value)
    return refused.value.refusal


@pytest.mark.parametrize("drain", [None, Drain(nonce="n", mode="restart")])
def test_control_document_round_trips(drain):
    document = a_document(drain=drain)
    assert read_control(encode(document), run_uid="u", newest=None) == document


orders = st.tuples(st.integers(0, 3), st.integers(0, 3))


@given(orders, orders)
def test_control_document_is_obeyed_unless_older_in_epoch_then_seq(held, offered):
    newest = a_document(epoch=held[0], seq=held[1])
    document = a_document(epoch=offered[0], seq=offered[1])
    if offered < held:
        assert refusal_of(encode(document), newest) is ControlRefusal.STALE
    else:
        assert read_control(encode(document), run_uid="u", newest=newest) == document


def test_foreign_document_is_refused_however_new():
    data = encode(a_document(run_uid="w", epoch=99))
    assert refusal_of(data) is ControlRefusal.FOREIGN_RUN


@given(st.binary(max_size=100))
def test_garbage_is_unreadable(data):
    assert refusal_of(data) is ControlRefusal.UNREADABLE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"format":1', b'"format":2'),
        (b'"epoch":2', b'"epoch":-2'),
        (b'"epoch":2', b'"epoch":"2"'),
        (b'"seq":5', b'"seq":5,"more":1'),
        (b'"drain":null', b'"drain":{"nonce":"n","mode":"jump"}'),
        (b'"plan_sha":"aa', b'"plan_sha":"AA'),
        (b'"plan_sha":"aa', b'"plan_sha":"aaa'),
    ],
)
def test_document_of_another_form_is_unreadable(old, new):
    data = encode(a_document())
    assert old in data
    assert refusal_of(data.replace(old, new, 1)) is ControlRefusal.UNREADABLE


def test_phases_are_split_between_rank_and_account():
    assert Phase.STEP in RANK_PHASES
    assert Phase.STEP not in ACCOUNT_PHASES
    assert set(RANK_PHASES) | set(ACCOUNT_PHASES) == set(Phase)
    split = {Phase.PRODUCTIVE, Phase.REPLAY, Phase.DATA_WAIT, Phase.STALL}
    assert not split & set(RANK_PHASES)


def test_paths_are_relative_and_distinct():
    assert plan_file("a") == "plans/a.json"
    assert rank_dir(3, 1) == "attempts/3/rank-1"
    assert checkpoint_dir("main", 20) == f"{line_dir('main')}/20"


def test_environment_names_are_distinct_and_ours():
    names = [value for name, value in vars(wire).items() if name.startswith("ENV_")]
    assert len(names) == len(set(names)) >= 10
    assert all(name.startswith("STEERSMAN_") for name in names)


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a/b", "..", "a b", "x" * 64, "a\n", "ü"])
def test_names_that_a_path_cannot_carry_are_refused(name):
    with pytest.raises(ValueError, match="pattern"):
        wire.StepRecord.model_validate({**a_record(), "line": name})


def a_record() -> dict[str, object]:
    return {
        "line": "main",
        "step": 1,
        "plan_sha": "a" * 64,
        "execution_sha": "b" * 64,
        "code": "c",
        "lr": {"matrix": (0.5).hex()},
        "loss": (1.0).hex(),
        "grad_norm": (1.0).hex(),
        "tokens": 2**40,
        "assignments": 0,
        "drops": {"sender": 0, "receiver": 0},
        "step_s": 0.1,
        "data_wait_s": 0.0,
        "wall_s": 1.0,
        "tags": [],
    }


def test_step_record_round_trips_its_bits():
    record = wire.StepRecord.model_validate(a_record())
    again = wire.StepRecord.model_validate_json(record.model_dump_json())
    assert again == record
    assert float.fromhex(again.loss) == 1.0
