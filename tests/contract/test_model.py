import pytest
from pydantic import ValidationError

from contract.model import (
    PRESETS,
    Execution,
    bank_rows,
    check_mesh,
    flops_per_token,
    is_full_attention,
    parameters,
    pool_rows,
    shape_of,
)

HERO = PRESETS["hero"]
TINY = PRESETS["tiny"]


def test_hero_parameters_equal_the_public_record():
    total, active = parameters(HERO)
    assert round(total / 1e9, 3) == 535.305
    assert round(active / 1e9, 4) == 22.7625


def test_hero_flops_equal_the_public_record():
    assert f"{flops_per_token(HERO, 4096):.5e}" == "1.49736e+11"
    twelve = HERO.model_copy(update={"full_kv_heads_counted": None})
    assert f"{flops_per_token(twelve, 4096):.5e}" == "1.50416e+11"


def test_flops_longer_context_costs_only_full_blocks():
    longer = flops_per_token(HERO, 8192) - flops_per_token(HERO, 4096)
    assert longer == 3 * 12 * 4096 * (4 * 48 * 128 + 3 * 48)


def test_full_attention_every_fourth_and_last():
    assert sum(is_full_attention(HERO, n) for n in range(48)) == 12
    odd = HERO.model_copy(update={"blocks": 6})
    assert [n for n in range(6) if is_full_attention(odd, n)] == [3, 5]


def test_capacities_hero_equal_the_public_record():
    launch = Execution(sender_capacity_percent=115)
    assert pool_rows(Execution(), 524_288, 64) == 3_004
    assert pool_rows(launch, 524_288, 64) == 3_141
    assert bank_rows(launch, 524_288, 6) == 33_497


def test_capacities_whole_products_are_not_rounded_up():
    # 1.10 x 190 rows is exactly 209; in binary floats it is 209.00000000000003.
    assert pool_rows(Execution(waves=1), 190, 1) == 209


def test_shape_overrides_accept_both_cases():
    assert shape_of("tiny", {"kvHeads": 4}) == shape_of("tiny", {"kv_heads": 4})
    assert shape_of("tiny", {"kvHeads": 4}).kv_heads == 4
    assert shape_of("hero") == HERO


@pytest.mark.parametrize(
    "overrides", [{"widht": 8}, {"width": 0}, {"width": "8"}, {"width": True}, {"zLoss": 0.1}]
)
def test_shape_bad_override_is_refused(overrides):
    with pytest.raises(ValidationError):
        shape_of("tiny", overrides)


def test_shape_unknown_preset_is_refused():
    with pytest.raises(ValueError, match="presets are hero, tiny"):
        shape_of("small")


def test_shape_is_frozen():
    with pytest.raises(ValidationError):
        TINY.width = 8


def rules(overrides=None, *, axis=4, replicas=1, tokens=2048, length=64, waves=3):
    shape = shape_of("tiny", overrides)
    findings = check_mesh(shape, Execution(waves=waves), axis, replicas, tokens, length)
    return [rule for rule, _ in findings]


def test_mesh_that_fits_has_no_findings():
    assert rules() == []
    assert check_mesh(HERO, Execution(), 64, 11, 46_137_344, 4096) == []


@pytest.mark.parametrize(
    ("rule", "overrides", "sizes"),
    [
        ("model-kv-heads", {"heads": 4, "kvHeads": 3}, {}),
        ("model-head-dim", {"headDim": 6}, {}),
        ("model-experts-per-token", {"expertsPerToken": 16}, {}),
        ("mesh-experts", {}, {"axis": 3, "tokens": 3 * 64}),
        ("mesh-local-experts", {"experts": 256}, {"axis": 1}),
        ("mesh-sequences", {}, {"tokens": 2000}),
        ("mesh-batch", {}, {"replicas": 3}),
        ("mesh-batch", {}, {"tokens": 64}),
        ("mesh-waves", {}, {"tokens": 8, "length": 2, "waves": 9}),
    ],
)
def test_mesh_that_does_not_fit_names_the_rule(rule, overrides, sizes):
    assert rules(overrides, **sizes) == [rule]


def test_mesh_255_local_experts_fit():
    assert rules({"experts": 255}, axis=1) == []
