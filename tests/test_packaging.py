"""One distribution: its version, its dependencies, its licence; `make wheels` tries it whole."""

import ast
import hashlib
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from contract import __version__
from controller.adapters import rundir
from controller.cli import deps, doctoring
from controller.core.declared.problems import SpecError
from tests.test_tidy import code, parse

ROOT = Path(__file__).parent.parent
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = DECLARED["project"]
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""sha256 of the licence's text as it is published."""
OF_THE_TRAINER = ("jax", "jaxlib", "optax", "orbax")


def names(requirements):
    return {re.match(r"[\w-]+", it)[0] for it in requirements}


def pins():
    text = (ROOT / "requirements" / "runtime.in").read_text()
    return dict(re.findall(r"^([\w-]+)==(\S+)$", text, re.M))


def test_version_is_written_in_one_place():
    assert DECLARED["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "contract.__version__"}
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    for name in code("contract", "controller", "trainer", "tools", "bench"):
        is_home = name == "contract/__init__.py"
        assert (f'"{__version__}"' in (ROOT / name).read_text()) == is_home, name


def test_changelog_knows_the_version():
    page = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[{re.escape(__version__)}\]", page, re.M)


def test_ctl_says_its_version():
    done = subprocess.run(
        [sys.executable, "-m", "controller.cli.main", "--version"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"steersman {__version__}\n"


def test_what_the_controller_imports_is_declared_for_it():
    roots = {"yaml": "pyyaml", "prometheus_client": "prometheus-client"}
    found = imported("contract", "controller")
    assert {roots.get(name, name) for name in found} - {"pydantic_core"} == names(
        PROJECT["dependencies"]
    )


def test_what_only_the_trainer_imports_is_its_extra():
    roots = {"orbax": "orbax-checkpoint", "prometheus_client": "prometheus-client"}
    found = {roots.get(name, name) for name in imported("trainer")}
    extra = names(PROJECT["optional-dependencies"]["trainer"])
    assert found <= extra | names(PROJECT["dependencies"]) | {"jaxlib"}
    assert extra <= found


def imported(*packages):
    """Return the top-level names of foreign modules that the packages import."""
    found = set()
    for name in code(*packages):
        for node in ast.walk(parse(name)):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"contract", "controller", "trainer"}


def test_every_dependency_is_pinned_within_its_range():
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["trainer"]]
    for requirement in wanted:
        name, least = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
        below = re.search(r"<([\d.]+)", requirement)
        pinned = numbers(pins()[name])
        assert numbers(least) <= pinned, requirement
        assert below is None or pinned < numbers(below[1]), requirement
    assert set(pins()) == names(wanted) | {"jaxlib"}


def numbers(version):
    return tuple(map(int, version.split(".")))


def test_licence_is_apache_2_in_full():
    assert PROJECT["license"] == "Apache-2.0"
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2
    assert not any(it.startswith("License ::") for it in PROJECT["classifiers"])


def test_wheel_holds_the_three_packages_and_the_command():
    assert DECLARED["tool"]["setuptools"]["packages"]["find"]["include"] == [
        "contract*", "controller*", "trainer*",
    ]  # fmt: skip
    module, _, function = PROJECT["scripts"]["ctl"].partition(":")
    assert callable(getattr(import_module(module), function))


BLOCKED = """
import importlib, pkgutil, sys
for name in {blocked!r}:
    sys.modules[name] = None
import contract, controller
for package in (contract, controller):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""


def test_every_module_of_the_controller_imports_without_jax():
    script = BLOCKED.format(blocked=OF_THE_TRAINER)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("missing", [(), ("jax", "orbax")])
def test_doctor_is_content_without_a_trainer_and_says_what_that_means(monkeypatch, missing):
    found = doctoring.importlib.util.find_spec
    monkeypatch.setattr(
        doctoring.importlib.util, "find_spec", lambda name: None if name in missing else found(name)
    )
    *needed, (is_well, what, words) = doctoring._check_libraries()
    assert (is_well, what) == (True, "trainer")
    assert words == "found" if not missing else words.startswith("no jax, orbax; runs whose file")
    assert all(is_there for is_there, *_ in needed)


def test_doctor_lacks_what_the_controller_needs(monkeypatch):
    monkeypatch.setattr(doctoring.importlib.util, "find_spec", lambda name: None)
    (is_well, what, words), *_ = doctoring._check_libraries()
    assert (is_well, what, words) == (
        False,
        "pydantic",
        "missing. Next: make setup, or pip install WHEEL",
    )


def test_file_of_the_own_trainer_is_refused_without_jax_and_others_are_not(monkeypatch):
    monkeypatch.setattr(rundir.importlib.util, "find_spec", lambda name: None)
    deps.check_given(deps.read_given(ROOT / "samples" / "minimal.yaml"))
    with pytest.raises(SpecError) as caught:
        deps.check_given(deps.read_given(ROOT / "samples" / "tiny.yaml"))
    (problem,) = caught.value.problems
    assert (problem.rule, problem.field) == ("trainer.missing", "spec.trainer.command")
    assert "which is not installed here. Install it: make setup in a clone" in str(problem)
    assert 'pip install "WHEEL[trainer]"' in str(problem)
