"""What the owner asked for, as files."""

import os

import pytest

from contract.wire import INTENTS_DIR
from controller.adapters.intents import IntentFiles, drop_intent
from controller.core.snapshot import OwnerIntent
from controller.ports import Refused


def an_intent(nonce: str, wall_ms: int = 1, **options) -> OwnerIntent:
    return OwnerIntent(
        nonce=nonce, verb=options.pop("verb", "stop"), user="me", wall_ms=wall_ms, **options
    )


def test_intents_are_read_oldest_first_and_known_ones_not_again(tmp_path):
    reader = IntentFiles(tmp_path)
    assert reader.read([]) == []
    drop_intent(tmp_path, an_intent("b", 2))
    drop_intent(tmp_path, an_intent("a", 3, verb="resume_from", line="main", step=40))
    drop_intent(tmp_path, an_intent("c", 1))
    assert [intent.nonce for intent in reader.read([])] == ["c", "b", "a"]
    assert reader.read(["b", "c"])[0].step == 40


def test_nonce_is_used_once(tmp_path):
    drop_intent(tmp_path, an_intent("a"))
    with pytest.raises(Refused):
        drop_intent(tmp_path, an_intent("a", verb="suspend"))


@pytest.mark.parametrize("data", [b"", b"{", b'{"nonce":"x"}', b"\xff"])
def test_file_that_is_no_intent_blocks_no_other(tmp_path, caplog, data):
    drop_intent(tmp_path, an_intent("a"))
    (tmp_path / INTENTS_DIR / "bad.json").write_bytes(data)
    reader = IntentFiles(tmp_path)
    for _ in range(3):
        assert [intent.nonce for intent in reader.read([])] == ["a"]
    assert caplog.text.count("intent bad is ignored") == 1


def test_copied_intent_file_asks_for_nothing(tmp_path):
    drop_intent(tmp_path, an_intent("a"))
    folder = tmp_path / INTENTS_DIR
    (folder / "again.json").write_bytes((folder / "a.json").read_bytes())
    assert [intent.nonce for intent in IntentFiles(tmp_path).read([])] == ["a"]


def test_half_written_intent_is_not_seen(tmp_path):
    (tmp_path / INTENTS_DIR).mkdir()
    (tmp_path / INTENTS_DIR / ".a.json.1.tmp").write_bytes(b"{")
    assert IntentFiles(tmp_path).read([]) == []


def test_directory_or_pipe_among_the_intents_holds_nobody_up(tmp_path):
    drop_intent(tmp_path, an_intent("a"))
    folder = tmp_path / INTENTS_DIR
    (folder / "x.json").mkdir()
    os.mkfifo(folder / "y.json")
    assert [intent.nonce for intent in IntentFiles(tmp_path).read([])] == ["a"]
