"""What all tests share."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def shared_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the trainers that this worker starts share what they compile: most of a cold start.

    Of this worker alone, because JAX does not write its cache for several writers of one entry.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("programs")))
        yield
