"""What a failed collective is taken for: a lost peer, or an error of the rank's own."""

from types import SimpleNamespace

import jax
import pytest

from trainer.gang import GangError
from trainer.train import blaming_lost_peers

GLOO = "UNKNOWN: Gloo all-to-all failed: Connection reset by peer"


def a_rank(ranks):
    return SimpleNamespace(step=15, gang=SimpleNamespace(ranks=ranks))


def fail(ranks, error):
    with blaming_lost_peers(a_rank(ranks)):
        raise error


@pytest.mark.parametrize("kind", [jax.errors.JaxRuntimeError, ValueError])
def test_failed_collective_of_a_gang_is_a_lost_peer(kind):
    with pytest.raises(GangError, match="step 15: UNKNOWN: Gloo"):
        fail(2, kind(GLOO))


@pytest.mark.parametrize("text", ["RESOURCE_EXHAUSTED: out of memory", "INVALID_ARGUMENT: shape"])
def test_error_of_its_own_stays_one(text):
    with pytest.raises(jax.errors.JaxRuntimeError):
        fail(2, jax.errors.JaxRuntimeError(text))


def test_rank_alone_has_no_peer_to_blame():
    with pytest.raises(jax.errors.JaxRuntimeError):
        fail(1, jax.errors.JaxRuntimeError(GLOO))
