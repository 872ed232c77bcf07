import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trainer.moe.tables import invert, plan_banks, plan_pools, rank_in_group

SENDERS, WAVES, POOL, TOKENS, CHOICES = 4, 3, 3, 16, 2


def draws():
    rng = np.random.default_rng(0)
    yield "random", rng.integers(0, SENDERS, (TOKENS, CHOICES))
    yield "all to one", np.full((TOKENS, CHOICES), 2)
    yield "even", np.arange(TOKENS * CHOICES).reshape(TOKENS, CHOICES) % SENDERS


@pytest.mark.parametrize("groups", [1, 5])
def test_rank_counts_earlier_elements_of_the_group(groups):
    group = np.random.default_rng(1).integers(0, groups + 2, 40)
    got = jax.jit(rank_in_group, static_argnums=1)(jnp.asarray(group, jnp.int32), groups)
    for place, own in enumerate(group):
        if own < groups:
            assert got[place] == np.sum(group[:place] == own)


def test_invert_finds_every_kept_element():
    slot = jnp.array([3, 0, 9, 1], jnp.int32)
    is_kept = jnp.array([True, True, False, True])
    assert invert(slot, is_kept, 4).tolist() == [1, 3, 4, 0]


@pytest.mark.parametrize(("name", "destination"), list(draws()))
def test_pools_drop_exactly_what_exceeds_them(name, destination):
    plan = jax.jit(plan_pools, static_argnums=(1, 2, 3))
    pools = plan(jnp.asarray(destination, jnp.int32), SENDERS, WAVES, POOL)
    load = np.bincount(destination.reshape(-1), minlength=SENDERS)
    assert pools.dropped == np.maximum(0, load - WAVES * POOL).sum()
    wave, slot = np.asarray(pools.wave_tk).reshape(-1), np.asarray(pools.slot_tk).reshape(-1)
    assert np.sum(wave == WAVES) == pools.dropped
    for a in np.flatnonzero(wave < WAVES):
        assert pools.occupant_wn[wave[a], slot[a]] == a
        assert slot[a] // POOL == destination.reshape(-1)[a]
    filled = np.asarray(pools.occupant_wn) < TOKENS * CHOICES
    assert filled.sum() == np.sum(wave < WAVES)


def test_pools_waves_do_not_change_what_is_kept():
    destination = jnp.asarray(dict(draws())["random"], jnp.int32)
    by_waves = [plan_pools(destination, SENDERS, waves, 6 // waves) for waves in (1, 2, 3)]
    kept = [np.asarray(p.wave_tk) < waves for p, waves in zip(by_waves, (1, 2, 3), strict=True)]
    np.testing.assert_array_equal(kept[0], kept[1])
    np.testing.assert_array_equal(kept[0], kept[2])
    assert not kept[0].all()


def test_banks_fill_round_robin_over_senders():
    # Four senders send three rows each to one expert whose bank holds six.
    id_sp = jnp.zeros((4, 3), jnp.int32)
    slot, row = plan_banks(id_sp, 1, 6)
    kept_by_sender = np.sum(np.asarray(slot).reshape(4, 3) < 6, axis=1)
    assert kept_by_sender.tolist() == [2, 2, 1, 1]
    assert sorted(np.asarray(row).tolist()) == [0, 1, 3, 4, 6, 9]


def test_banks_ignore_empty_rows():
    slot, row = plan_banks(jnp.array([[-1, 1], [0, -1]], jnp.int32), 2, 2)
    assert slot.tolist() == [4, 2, 0, 4]
    assert row.tolist() == [2, 4, 1, 4]


def test_banks_equal_the_plain_loop():
    ids = np.random.default_rng(2).integers(-1, 3, (4, 6))
    taken = [0, 0, 0]
    want = np.full(ids.shape, 3 * 5)
    for position in range(6):
        for sender in range(4):
            own = ids[sender, position]
            if own >= 0 and taken[own] < 5:
                want[sender, position] = own * 5 + taken[own]
                taken[own] += 1
    slot, row = plan_banks(jnp.asarray(ids, jnp.int32), 3, 5)
    np.testing.assert_array_equal(np.asarray(slot).reshape(4, 6), want)
    for place in np.flatnonzero(want.reshape(-1) < 15):
        assert row[want.reshape(-1)[place]] == place
    assert np.sum(np.asarray(row) < 24) == np.sum(want < 15)
