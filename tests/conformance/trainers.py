"""The trainers under test; another team's is named by an environment variable."""

import dataclasses
import os
import shlex
import sys

import pytest

from tests.conformance.harness import ENV_START_S, ENV_STEP_S, ENV_TRAINER, TrainerKind

MINIMAL = TrainerKind(
    name="minimal",
    command=(sys.executable, "-m", "samples.minimal_trainer"),
    start_s=30,
    step_s=1,
    lead_steps=150,
    deadline_s=30,
    # Slow enough that a test can act between two steps, whatever the machine.
    environment={"MINIMAL_STEP_S": "0.01"},
)
JAX = TrainerKind(
    name="jax",
    command=(sys.executable, "-m", "trainer.train"),
    start_s=180,
    step_s=1,
    lead_steps=40,
    deadline_s=240,
    environment={"JAX_PLATFORMS": "cpu"},
)


def _list_kinds() -> list[TrainerKind]:
    command = os.environ.get(ENV_TRAINER)
    if not command:
        return [MINIMAL, JAX]
    other = dataclasses.replace(
        JAX,
        name="other",
        command=tuple(shlex.split(command)),
        start_s=float(os.environ.get(ENV_START_S, JAX.start_s)),
        step_s=float(os.environ.get(ENV_STEP_S, JAX.step_s)),
    )
    return [other]


KINDS = _list_kinds()

every_trainer = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.name, marks=[pytest.mark.faults] if kind is JAX else [])
        for kind in KINDS
    ],
)
"""A case for each trainer; the slow one's run with the fault tests."""

quick_trainer = pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.name) for kind in KINDS if kind is not JAX]
)
"""A case that would cost the slow trainer minutes; its own tests cover it."""

slow_trainer = pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, id=kind.name, marks=[pytest.mark.faults]) for kind in KINDS if kind is JAX],
)
"""A case that spares the slow trainer a second start."""
