"""Every metric: name, kind, labels, who serves it, and the text format.

Counters and timestamps are the truth: tokens, FLOPs, drops and seconds are counters; rates, MFU
and goodput are derived. Labels never carry a step, a sha (except in `_info`) or free text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["counter", "gauge"]
Producer = Literal["rank 0", "every rank", "controller"]


@dataclass(frozen=True)
class Metric:
    """One metric family. `name` is the full name of its samples, `_total` included."""

    name: str
    kind: Kind
    producer: Producer
    help: str
    labels: tuple[str, ...] = ()


RANK_0: Producer = "rank 0"
EVERY_RANK: Producer = "every rank"
CONTROLLER: Producer = "controller"

INFO = Metric(
    "moe_train_info", "gauge", RANK_0, "Always 1.", ("plan_sha", "config_sha", "code", "mesh")
)
STEP = Metric("moe_train_step", "gauge", RANK_0, "Completed steps.")
TOKENS = Metric("moe_train_tokens_total", "counter", RANK_0, "Tokens trained.", ("replay",))
FLOPS = Metric("moe_train_model_flops_total", "counter", RANK_0, "Model FLOPs of trained tokens.")
PEAK_FLOPS = Metric(
    "moe_train_peak_flops_per_second", "gauge", RANK_0,
    "Peak FLOP/s of all devices; origin says whether declared or measured.", ("origin",),
)  # fmt: skip
PHASE_SECONDS = Metric(
    "moe_train_phase_seconds_total", "counter", RANK_0,
    "Seconds of the main thread per phase; they sum to uptime.", ("phase",),
)  # fmt: skip
LOSS = Metric("moe_train_loss", "gauge", RANK_0, "Cross-entropy of the last step in nats.")
GRAD_NORM = Metric("moe_train_grad_norm", "gauge", RANK_0, "Gradient norm of the last step.")
LEARNING_RATE = Metric(
    "moe_train_learning_rate", "gauge", RANK_0, "As received by the step.", ("group",)
)
EVAL_LOSS = Metric(
    "moe_train_eval_loss", "gauge", RANK_0, "Held-out cross-entropy in nats.", ("set",)
)
LAST_STEP_TIMESTAMP = Metric(
    "moe_train_last_step_timestamp_seconds", "gauge", RANK_0, "Wall time of the last step's end."
)
CHECKPOINT_SECONDS = Metric(
    "moe_train_checkpoint_seconds_total", "counter", RANK_0, "Seconds of saving.", ("stage",)
)
CHECKPOINT_FAILURES = Metric(
    "moe_train_checkpoint_failures_total", "counter", RANK_0, "Failed saves.", ("reason",)
)
OVERHEAD_SECONDS = Metric(
    "moe_train_overhead_seconds_total", "counter", EVERY_RANK,
    "Seconds of the main thread spent on being watched.", ("part",),
)  # fmt: skip
ASSIGNMENTS = Metric(
    "moe_router_assignments_total", "counter", RANK_0, "Valid (token, expert) assignments."
)
DROPPED = Metric(
    "moe_router_dropped_assignments_total", "counter", RANK_0, "Dropped assignments.", ("stage",)
)
ENTROPY = Metric("moe_router_entropy_nats", "gauge", RANK_0, "Mean entropy of expert load.")
BIAS_MAX = Metric("moe_router_bias_max", "gauge", RANK_0, "Largest router bias.")
RANK_STEP = Metric("moe_train_rank_step", "gauge", EVERY_RANK, "Completed steps.")
RANK_PHASE = Metric("moe_train_rank_phase", "gauge", EVERY_RANK, "1 for the current.", ("phase",))
RANK_PROGRESS_AGE = Metric(
    "moe_train_rank_progress_age_seconds", "gauge", EVERY_RANK,
    "Seconds since the main thread last made progress (a step, a phase, bytes).",
)  # fmt: skip
RANK_PHASE_DEADLINE = Metric(
    "moe_train_rank_phase_deadline_seconds", "gauge", EVERY_RANK,
    "Age at which the rank's own watchdog ends it.",
)  # fmt: skip
RANK_MEMORY = Metric("moe_train_rank_memory_bytes", "gauge", EVERY_RANK, "In use.", ("kind",))
RANK_PRECOLLECTIVE = Metric(
    "moe_train_rank_precollective_seconds_total", "counter", EVERY_RANK,
    "Seconds between a step's start and the rank's entry into it: a slow rank shows here.",
)  # fmt: skip
RANK_COMMIT_AGE = Metric(
    "moe_train_rank_commit_age_seconds", "gauge", EVERY_RANK,
    "Seconds since the running asynchronous commit began; 0 when none runs.",
)  # fmt: skip
RANK_IDENTITY = Metric(
    "moe_train_rank_info", "gauge", EVERY_RANK, "Always 1: whose numbers these are.",
    ("run_uid", "attempt", "rank", "plan_sha"),
)  # fmt: skip
RANK_CONTROL_REFUSED = Metric(
    "moe_train_rank_control_refused", "gauge", EVERY_RANK,
    "1 while the newest control document is refused for this reason.", ("reason",),
)  # fmt: skip
RANK_PLAN_PENDING = Metric(
    "moe_train_rank_plan_pending", "gauge", EVERY_RANK,
    "1 while a revision is held but not yet effective.",
)  # fmt: skip

METRICS: tuple[Metric, ...] = (
    INFO, STEP, TOKENS, FLOPS, PEAK_FLOPS, PHASE_SECONDS, LOSS, GRAD_NORM, LEARNING_RATE,
    EVAL_LOSS, LAST_STEP_TIMESTAMP, CHECKPOINT_SECONDS, CHECKPOINT_FAILURES, OVERHEAD_SECONDS,
    ASSIGNMENTS, DROPPED, ENTROPY, BIAS_MAX,
    RANK_STEP, RANK_PHASE, RANK_PROGRESS_AGE, RANK_PHASE_DEADLINE, RANK_MEMORY,
    RANK_PRECOLLECTIVE, RANK_COMMIT_AGE, RANK_IDENTITY, RANK_CONTROL_REFUSED, RANK_PLAN_PENDING,
)  # fmt: skip

REQUIRED_OF_EVERY_RANK = (
    RANK_IDENTITY, RANK_STEP, RANK_PHASE, RANK_PROGRESS_AGE, RANK_PHASE_DEADLINE,
    RANK_CONTROL_REFUSED,
)  # fmt: skip
REQUIRED_OF_RANK_0 = (
    STEP, TOKENS, FLOPS, PEAK_FLOPS, PHASE_SECONDS, LOSS, LEARNING_RATE, CHECKPOINT_FAILURES,
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """One value of one series."""

    metric: Metric
    value: float
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


def render_exposition(samples: Iterable[Sample]) -> str:
    """Return the Prometheus text format of `samples`, families in the order they first occur."""
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        assert set(sample.labels) == set(sample.metric.labels), sample
        families.setdefault(sample.metric.name, []).append(sample)
    lines: list[str] = []
    for name, members in families.items():
        metric = members[0].metric
        lines.append(f"# HELP {name} {metric.help}")
        lines.append(f"# TYPE {name} {metric.kind}")
        lines.extend(f"{name}{_labels(sample.labels)} {sample.value!r}" for sample in members)
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
