"""Worlds that leave no process behind."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness import World, make_world


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Return a maker of worlds; every process of them is killed at the end of the test."""
    worlds: list[World] = []

    def build(**options: Any) -> World:
        worlds.append(make_world(tmp_path, **options))
        return worlds[-1]

    yield build
    for world in worlds:
        world.close()
