"""Every decision can be made again from its record, bit for bit."""

from controller.core.telling.replay import replay
from controller.simulate.book import CORE
from tests.builders import a_run


def a_story():
    run = a_run().launched().with_end(1, 137)
    run.pass_once()
    return run.over(94, 137, 94, 94)


def test_every_decision_is_repeated_bit_for_bit():
    repeated = replay(a_story().book.records, CORE)
    assert [one.seq for one in repeated] == [3, 7, 9]
    assert all(one.is_equal and one.is_same_core for one in repeated)


def test_changed_input_is_another_decision():
    run = a_story()
    changed = []
    for record in run.book.records:
        body = dict(record.body)
        if record.kind == "decision" and body["rule"] == "record_end":
            body["snapshot"] = {**body["snapshot"], "gang": {"unknown": "fleet"}}
        changed.append(record.model_copy(update={"body": body}))
    repeated = replay(changed, CORE)
    assert [one.is_equal for one in repeated] == [True, True, False]


def test_another_core_is_told_apart():
    assert not any(one.is_same_core for one in replay(a_story().book.records, "other"))
