"""Run directories that leave no process behind."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.harness import Gang, Run, TrainerKind


@pytest.fixture
def launch() -> Iterator[Callable[..., Gang]]:
    """Return Run.launch, with every gang killed at the end of the test."""
    gangs: list[Gang] = []

    def start(run: Run, *args: object, **options: object) -> Gang:
        gangs.append(run.launch(*args, **options))  # pyright: ignore[reportArgumentType]  as given
        return gangs[-1]

    yield start
    for gang in gangs:
        gang.close()


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    """Return a maker of run directories whose control document points to their plan."""

    def make(kind: TrainerKind, **options: object) -> Run:
        run = Run(tmp_path / "run", kind, **options)
        run.point_to(run.plan.sha)
        return run

    return make
