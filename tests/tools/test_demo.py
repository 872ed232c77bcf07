import json

import pytest

from tools import demo
from tools.story import FAILED, plan_story

STORY = plan_story(0.13, 8.0)


def test_gate_figures_become_rows():
    figures = {
        "verdict": "passed", "min_tokens_per_second": 500, "tokens_per_second": 15_000.0,
        "step_s": 0.13, "p90_step_s": 0.16, "memory_bytes": [1024**3, 1024**3],
        "drops_percent": {"sender": 3.0, "receiver": 5.0}, "mfu_percent": 6.4,
        "peak_flops_per_second": 2e11, "peak_origin": "measured",
    }  # fmt: skip
    rows = dict(demo.describe_gate(figures))
    assert rows["memory"] == "1,024, 1,024 MiB by rank at most"
    assert rows["MFU"] == "6.4% of 200 GFLOP/s (a GEMM measured here)"


@pytest.mark.parametrize(
    ("launched", "code", "words"),
    [
        (1, FAILED, "ended with 1"),
        (0, demo.INTERRUPTED, "the run goes on"),
        (130, demo.INTERRUPTED, "the run goes on"),
    ],
)
def test_run_without_a_summary_is_told_by_how_its_launch_ended(tmp_path, launched, code, words):
    found = demo.conclude(tmp_path, STORY, launched)
    assert found.code == code
    assert words in found.sentences[0]


def test_records_of_the_pacer_are_read_once_the_last_is_there(tmp_path):
    drills = [
        {"kind": "pace", "stepS": "0.26", "done": "pacing"},
        {"kind": "pace", "stepS": "0.26", "pacedSteps": 70},
        {"kind": "kill", "done": "killed"},
        {"kind": "pace", "stepS": "0.39", "pacedSteps": 500},
    ]
    path = tmp_path / "drills.jsonl"
    path.write_text("".join(f"{json.dumps(it)}\n" for it in drills))
    assert [it["pacedSteps"] for it in demo.await_paces(path, STORY)] == [70, 500]


def test_judgement_is_printed_with_its_code(capsys):
    assert demo.tell(demo.Judgement(6, ["because"])) == 6
    said = capsys.readouterr().out
    assert "NOT SHOWN" in said
    assert "  because" in said
