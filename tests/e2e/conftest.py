import pytest

from tests.e2e.harness import Ctl


@pytest.fixture
def ctl(tmp_path):
    """`ctl` in a fresh folder; whatever it started is ended afterwards."""
    command = Ctl(tmp_path)
    yield command
    command.end_everything()
