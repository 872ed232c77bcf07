import re
from xml.etree import ElementTree

import pytest

from contract.schedule import shares_past
from tools.pictures import DRAWERS, FORK, KNOTS, PICTURES, ROOT, SHORTER, SHORTER_KNOTS

CONCEPTS = (ROOT / "docs" / "concepts.md").read_text()


@pytest.mark.parametrize("name", DRAWERS)
def test_picture_is_what_the_code_draws(name):
    assert (PICTURES / name).read_text() == DRAWERS[name]().render(), "next: make docs"


@pytest.mark.parametrize("name", DRAWERS)
def test_picture_is_whole_reads_on_dark_paper_and_stays_within(name):
    text = DRAWERS[name]().render()
    root = ElementTree.fromstring(text)
    height = float(root.get("height"))
    assert "prefers-color-scheme:dark" in text
    for mark in root.iter():
        assert 0 <= float(mark.get("x", 0)) <= 720
        assert 0 <= float(mark.get("y", 0)) <= height
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_every_picture_stands_on_the_page():
    assert set(re.findall(r"pictures/([a-z]+\.svg)", CONCEPTS)) == set(DRAWERS)
    assert {path.name for path in PICTURES.iterdir()} == set(DRAWERS)


def test_drawn_revision_keeps_the_past_and_the_end():
    assert SHORTER_KNOTS[-1] == (SHORTER - 1, KNOTS[-1][1])
    assert shares_past(KNOTS, SHORTER_KNOTS, FORK + 1)
