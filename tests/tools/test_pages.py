"""Links and paths on the pages lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.test_tidy import tracked

ROOT = Path(__file__).parents[2]
PAGES = [name for name in tracked() if name.endswith(".md")]
LINK = re.compile(r"\]\(([^)\s]+)\)")
TO_BE_WRITTEN = {"controller/core/room.py", "tests/controller/core/test_room.py"}
"""Files of a worked change, which its reader writes."""


def slugs(path):
    """Return the anchors that the headings of a page have."""
    heads = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    for link in LINK.findall((ROOT / page).read_text()):
        place, _, anchor = link.partition("#")
        if "://" in place:
            continue
        target = (ROOT / page).parent / place if place else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in slugs(target), link


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/contract.md"])
def test_paths_in_code_type_exist(page):
    paths = re.findall(
        r"`((?:contract|controller|trainer|tests|tools|samples|docs|\.ci)/[\w./-]+)`",
        (ROOT / page).read_text(),
    )
    assert paths
    assert [it for it in paths if it not in TO_BE_WRITTEN and not (ROOT / it).exists()] == []


def test_rows_on_pages_can_be_put_into_their_table_as_they_stand():
    """Formatted as files, rows would become tuples of themselves."""
    for page in PAGES:
        text = (ROOT / page).read_text()
        assert re.findall(r"^\(.*\),\)$", text, re.M) == [], page


def test_targets_on_the_pages_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        named = re.findall(r"(?:^    |`)make ([a-z-]+)", (ROOT / page).read_text(), re.M)
        assert set(named) <= targets, page


def test_decisions_are_numbered_without_a_gap():
    names = sorted(path.name for path in (ROOT / "docs" / "adr").iterdir())
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    for name in names:
        text = (ROOT / "docs" / "adr" / name).read_text()
        assert text.startswith(f"# {name[:4]} ")
        assert all(f"**{part}.**" in text for part in ("Context", "Decision"))
