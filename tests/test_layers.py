"""What an import-linter contract cannot say: a forbidden list is no allow-list."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAZY = {ROOT / "controller" / "cli" / name for name in ("deps.py", "verbs.py")}
STDLIB = sys.stdlib_module_names


def imported_by(path: Path) -> set[str]:
    """Return the top-level names of the modules that `path` imports, at any depth of the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            found.add((node.module or "").partition(".")[0])
    return found


def test_contract_imports_only_stdlib_and_pydantic():
    paths = sorted((ROOT / "contract").rglob("*.py"))
    assert paths
    for path in paths:
        assert imported_by(path) <= STDLIB | {"contract", "pydantic"}, path


def test_sample_trainers_import_only_contract_and_stdlib():
    for path in sorted((ROOT / "samples").rglob("*.py")):
        assert imported_by(path) <= STDLIB | {"contract", "minimal"}, path


def test_contract_touches_no_clock_file_or_socket():
    banned = {
        "time",
        "random",
        "os",
        "socket",
        "subprocess",
        "threading",
        "logging",
        "io",
        "shutil",
    }
    for path in sorted((ROOT / "contract").rglob("*.py")):
        assert not imported_by(path) & banned, path


def test_packages_keep_imports_at_the_top():
    for package in ("contract", "controller", "trainer"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if path not in LAZY:  # `ctl --help` must start at once
                assert not late_imports(path), path


def late_imports(path: Path) -> list[int]:
    """Return the lines of imports inside functions, classes and conditions."""
    tree = ast.parse(path.read_text())
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return [node.lineno for node in imports if node not in tree.body]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import numpy.linalg as n", {"numpy"}),
        ("def f():\n    from jax import numpy", {"jax"}),
        ("from contract.plan import Plan\nimport os", {"contract", "os"}),
    ],
)
def test_the_walk_itself_sees_every_form_of_import(tmp_path, text, names):
    path = tmp_path / "module.py"
    path.write_text(text)
    assert imported_by(path) == names
    assert bool(late_imports(path)) == text.startswith("def")
