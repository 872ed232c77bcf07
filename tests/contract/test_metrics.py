import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from contract.metrics import (
    METRICS,
    REQUIRED_OF_EVERY_RANK,
    REQUIRED_OF_RANK_0,
    Metric,
    Sample,
    render_exposition,
)

label_values = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"), max_size=12)


@st.composite
def samples(draw) -> list[Sample]:
    """Draw distinct series of declared metrics with any label text and any value."""
    drawn = draw(
        st.lists(
            st.sampled_from(METRICS).flatmap(
                lambda metric: st.tuples(
                    st.just(metric), st.tuples(*[label_values for _ in metric.labels])
                )
            ),
            max_size=12,
            unique=True,
        )
    )
    values = st.floats(allow_nan=False) | st.just(math.inf)
    return [
        Sample(metric, draw(values), dict(zip(metric.labels, labels, strict=True)))
        for metric, labels in drawn
    ]


@given(samples())
def test_exposition_is_read_back_by_the_reference_parser(drawn):
    found = [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(render_exposition(drawn))
        for sample in family.samples
    ]
    wanted = [(s.metric.name, dict(s.labels), s.value) for s in drawn]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_exposition_declares_kind_and_help_of_each_family_once():
    metric = Metric("x_total", "counter", "rank 0", "Things.", ("kind",))
    text = render_exposition([Sample(metric, 1.0, {"kind": k}) for k in ("a", "b")])
    assert text == (
        "# HELP x_total Things.\n# TYPE x_total counter\n"
        'x_total{kind="a"} 1.0\nx_total{kind="b"} 1.0\n'
    )


def test_sample_with_other_labels_than_declared_is_our_own_mistake():
    metric = Metric("x", "gauge", "rank 0", "Things.", ("kind",))
    with pytest.raises(AssertionError):
        render_exposition([Sample(metric, 1.0)])


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_metric_names_follow_the_conventions(metric):
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.name.startswith(("moe_train_", "moe_router_"))
    assert metric.help.endswith(".")
    assert not {"step", "sha", "reason_text"} & set(metric.labels)
    if "plan_sha" in metric.labels:
        assert metric.name.endswith("_info")


def test_metric_names_are_distinct_and_required_ones_declared():
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert set(REQUIRED_OF_EVERY_RANK) | set(REQUIRED_OF_RANK_0) <= set(METRICS)
    assert all(metric.producer == "every rank" for metric in REQUIRED_OF_EVERY_RANK)
