"""What the pages say is what the code does."""

import re
from pathlib import Path

import pytest

from controller.cli import deps
from controller.core.declared.drills import parse_drills
from controller.core.declared.fields import Section
from controller.core.declared.run_file import parse_run_file
from controller.core.declared.spec import RunFile
from tools.cli_reference import render_commands

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "docs" / "cli.md", ROOT / "docs" / "run_file.md"]
VERBS = set(re.findall(r"^## ctl (\w+)", render_commands(), re.MULTILINE))


def fields_of(model):
    """Yield the YAML names of a section's fields, and those of the sections below it."""
    for name, field in model.model_fields.items():
        yield field.alias or name
        for part in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, Section):
                yield from fields_of(part)


def test_every_field_of_the_run_file_is_documented():
    page = (ROOT / "docs" / "run_file.md").read_text()
    words = set(re.findall(r"\w+", page))
    told_in_words = {"spec", "metadata", "shape", "options", "parts", "kind"}
    missing = set(fields_of(RunFile)) - words - told_in_words
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_the_pages_exist(page):
    named = set(re.findall(r"`?ctl ([a-z]+)", page.read_text()))
    assert named
    assert named <= VERBS


def test_readme_is_short_and_its_run_file_is_right():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 100
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    comment, _, sample = (ROOT / "samples" / "own-text.yaml").read_text().partition("\n")
    assert comment.startswith("# ")
    assert sample == block
    parse_run_file(block)


def test_text_of_the_readme_s_run_file_suffices():
    deps.check_given(deps.read_given(ROOT / "samples" / "own-text.yaml"), measure=True)


RUN_FILES = [it for it in sorted((ROOT / "samples").glob("*.yaml")) if "drill" not in it.name]
DRILLS = sorted((ROOT / "samples").glob("*drill*.yaml"))


@pytest.mark.parametrize("path", RUN_FILES, ids=lambda path: path.name)
def test_sample_run_file_is_right(path):
    given = deps.read_given(path)
    if given.run_file.spec.fleet.kind == "local":
        deps.check_given(given)
    else:
        deps.suppose_run(given)


@pytest.mark.parametrize("path", DRILLS, ids=lambda path: path.name)
def test_sample_drill_hits_after_a_checkpoint_and_before_the_end(path):
    run_file = deps.read_given(path.with_name(path.name.replace("-drill", ""))).run_file
    every = run_file.spec.checkpoints.every_steps
    for drill in parse_drills(path.read_text(), path.name):
        assert drill.at_step % every >= 5
        assert every < drill.at_step < run_file.spec.total_steps // 4


def test_readme_names_the_command_that_the_gate_runs():
    assert "phase test\n" in (ROOT / ".ci" / "run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("verb", ["gate", "replan"])
def test_help_names_the_exit_codes(verb, run_ctl):
    code, told, _ = run_ctl(f"ctl {verb} --help")
    assert (code, "Exit codes: 0 " in told) == (0, True)
