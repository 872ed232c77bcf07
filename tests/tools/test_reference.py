import pytest

from tools.reference import PAGES, RENDERERS, render_exits, render_metrics


@pytest.mark.parametrize("name", RENDERERS)
def test_generated_page_is_what_the_code_says(name):
    assert (PAGES / name).read_text() == RENDERERS[name](), "next: make docs"


def test_generated_pages_are_the_only_ones_there():
    assert {path.name for path in PAGES.iterdir()} == set(RENDERERS)


def test_exit_codes_page_tells_meaning_and_consequence():
    page = render_exits()
    assert "| 0 | `DONE` | The horizon is reached" in page
    assert "| 124 | `STALL` | The watchdog ended a rank" in page
    assert page.count("halt: a restart cannot cure it") >= 3


def test_metrics_page_names_labels_and_producer():
    assert "| `moe_train_tokens_total` | counter | rank 0 | `replay` |" in render_metrics()
