"""The house style that no linter holds. Exceptions stand by name; the lists only shrink."""

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("contract", "controller", "trainer")
CODE = (*PACKAGES, "samples", "tools", "tests", "bench", "docs")

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
LONG_FILES: frozenset[str] = frozenset()
LONG_FUNCTIONS: frozenset[str] = frozenset()

IMPURE_CALL = re.compile(
    r"(time\.\w+|random\.\w+|secrets\.\w+|os\.\w+|uuid\.uuid[14]|open|input|"
    r"(datetime\.)*datetime\.(now|utcnow|today)|(datetime\.)*date\.today)"
)
PRINTERS = frozenset({"controller/cli/output.py"})

# The text of this pattern must not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:home|Users|work|root|tmp|opt|private)/\w")
MACHINE_PATH_FILES: frozenset[str] = frozenset()


UNTRACKED = frozenset({".git", ".venv", "runs", "build", "dist", "__pycache__"})
CACHES = re.compile(r"\.\w+_cache|\.hypothesis|.*\.egg-info")


@cache
def tracked() -> tuple[str, ...]:
    """Return the files that are, or would be, in the repository; all of an unpacked archive."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    names = set(listed.stdout.splitlines()) if listed.returncode == 0 else set(walk())
    return tuple(name for name in sorted(names) if (ROOT / name).is_file())


def walk() -> Iterator[str]:
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [n for n in folders if n not in UNTRACKED and not CACHES.fullmatch(n)]
        yield from (str(Path(folder, name).relative_to(ROOT)) for name in files)


def test_the_walk_of_an_archive_finds_what_git_lists():
    kept = {name for name in walk() if not name.endswith(".pyc")}
    assert set(tracked()) <= kept
    assert not any(name.startswith((".venv/", ".git/", "runs/")) for name in kept)


@cache
def parse(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text())


def code(*folders: str) -> Iterator[str]:
    for name in tracked():
        if name.endswith(".py") and name.startswith(tuple(f"{folder}/" for folder in folders)):
            yield name


def calls(name: str) -> Iterator[tuple[str, int]]:
    """Yield (dotted name, line) of every call in a file."""
    for node in ast.walk(parse(name)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno


def test_files_are_short():
    long = {
        name for name in code(*CODE) if len((ROOT / name).read_text().splitlines()) > MAX_FILE_LINES
    }
    assert long == LONG_FILES


def test_functions_are_short():
    long = {
        f"{name}:{node.name}"
        for name in code(*CODE)
        for node in ast.walk(parse(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    }
    assert long == LONG_FUNCTIONS


def test_packages_have_charters():
    folders = {str(Path(name).parent) for name in code(*PACKAGES)}
    for folder in sorted(folders):
        charter = " ".join((ast.get_docstring(parse(f"{folder}/__init__.py")) or "").split())
        assert "May live here:" in charter, folder
        assert "May not:" in charter, folder


def test_pure_packages_call_no_clock_random_or_file():
    for name in code("contract", "controller/core"):
        for call, line in calls(name):
            assert not IMPURE_CALL.fullmatch(call), f"{name}:{line}: {call}"


def test_only_the_output_module_prints():
    for name in code(*PACKAGES):
        for call, line in calls(name):
            is_print = call == "print" or call.startswith(("sys.stdout.write", "rich.print"))
            assert name in PRINTERS or not is_print, f"{name}:{line}: {call}"


def test_tests_wait_for_conditions_not_for_time():
    for name in code("tests"):
        for call, line in calls(name):
            assert call not in {"time.sleep", "sleep"}, f"{name}:{line}: use tests/waiting.py"


BARE_SUPPRESSION = re.compile(
    r"#\s*(type:\s*ignore|noqa|pyright:\s*ignore)(:?[\sA-Z0-9,]*|\[[\w,\s-]*\]\s*)$"
)


def test_suppressions_give_a_reason():
    for name in code(*CODE):
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            assert not BARE_SUPPRESSION.search(line), f"{name}:{number}: say why, behind it"


def test_no_tracked_file_names_a_path_of_one_machine():
    for name in tracked():
        if name in MACHINE_PATH_FILES:
            continue
        text = (ROOT / name).read_bytes().decode(errors="replace")
        found = MACHINE_PATH.search(text)
        assert not found, f"{name}: {found and found[0]}"


def test_requirements_name_no_place_to_fetch_from():
    for path in sorted((ROOT / "requirements").iterdir()):
        text = path.read_text()
        assert not re.search(r"://|--(extra-)?index-url|--find-links|^-[if] ", text, re.M), path
        if path.suffix == ".txt":
            pins = re.findall(r"^\S.*$", text, re.M)
            assert pins
            assert all("==" in pin and pin.endswith("\\") for pin in pins), path


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("see /" + "tmp/x", True),
        ("'/" + "home/me'", True),
        ("a.example/work/x", False),
        ("/tmp", False),
    ],
)
def test_the_path_pattern_itself(text, is_found):
    assert bool(MACHINE_PATH.search(text)) == is_found


@pytest.mark.parametrize(
    ("text", "is_bare"),
    [
        ("x  # no" + "qa", True),
        ("x  # no" + "qa: S603, E501", True),
        ("x  # pyright: " + "ignore[reportAny]", True),
        ("x  # no" + "qa: S603  the list is ours", False),
        ("x  # pyright: " + "ignore[reportAny]  # JSON", False),
    ],
)
def test_the_suppression_pattern_itself(text, is_bare):
    assert bool(BARE_SUPPRESSION.search(text)) == is_bare
