"""`ctl gate`: the admission test of a run file, on this machine, now."""

from collections.abc import Iterator

from controller.cli import deps, output
from controller.cli.codes import Code
from controller.cli.orders import GateOrder
from controller.cli.peek import list_live_ranks
from controller.core.declared.launched import GivenFile
from controller.core.declared.problems import Problem, SpecError
from controller.core.gate import MIN_STEPS, PEAK_LABELS, GateReport, describe_json, judge

FORMS = ("table", "json")
GIB = 1024**3
MILLI = 1_000


def gate(order: GateOrder) -> int:
    """Measure the first steps of the run that the file declares; return the exit code.

    Raises:
        SpecError: the file or an option is wrong; nothing was started.
        Unavailable: the gang did not get that far.
    """
    given = deps.read_given(order.file)
    _check_order(order, given)
    deps.check_given(given)
    name = given.run_file.metadata.name
    if list_live_ranks(order.runs_dir / name):
        output.tell(f"ranks of run {name} live: what is measured is what they leave")
    evidence = deps.measure_gate(given, order.runs_dir, order.steps, output.tell)
    declared = given.run_file.spec.gate
    report = judge(evidence, declared.min_tokens_per_second if declared else None)
    if order.form == "json":
        output.emit_json(describe_json(name, report))
    else:
        output.emit_table([(name, describe_verdict(report)), *_rows(report)])
    return Code.DIFFERS if report.verdict == "failed" else Code.DONE


def _check_order(order: GateOrder, given: GivenFile) -> None:
    advice = f"For instance: ctl gate {order.file}"
    if order.form not in FORMS:
        bound = f"it must be one of {', '.join(FORMS)}"
        raise SpecError([Problem("gate.output", "--output", f'"{order.form}"', bound, advice)])
    total = given.run_file.spec.total_steps
    if not MIN_STEPS <= order.steps <= total:
        bound = f"it must be {MIN_STEPS} to the run's {total} steps"
        raise SpecError([Problem("gate.steps", "--steps", str(order.steps), bound, advice)])


def describe_verdict(report: GateReport) -> str:
    """Return the verdict in words."""
    minimum = report.minimum
    if minimum is None:
        return "no minimum is declared (spec.gate.minTokensPerSecond)"
    percent = 100 * report.tokens_per_second / minimum
    return f"{report.verdict}: {percent:,.1f}% of the minimum of {minimum:,} tokens/s"


def _rows(report: GateReport) -> Iterator[tuple[str, str]]:
    first = report.steps - report.measured_steps
    what = f"median of {report.measured_steps} steps, the first {first} not counted"
    yield "speed", f"{report.tokens_per_second:,.0f} tokens/s, {what}"
    median, p90 = MILLI * report.step_s, MILLI * report.p90_step_s
    yield "step", f"median {median:,.1f} ms, p90 {p90:,.1f} ms"
    yield "start", f"{report.start_s:.1f} s from launch to the end of the first step"
    sizes = ", ".join(f"{size / GIB:.2f}" for _, size in sorted(report.memory_bytes.items()))
    yield "memory", f"{sizes} GiB by rank ({report.memory_source})"
    sender, receiver = report.sender_drops_percent, report.receiver_drops_percent
    if sender is None or receiver is None:
        yield "drops", "none: nothing is routed"
    else:
        yield "drops", f"{sender:.2f}% at senders, {receiver:.2f}% at receivers"
    yield "MFU", _describe_mfu(report)
    yield "loss", f"{report.first_loss:.3f} nats at first, {report.last_loss:.3f} at last"


def _describe_mfu(report: GateReport) -> str:
    if report.peak is None:
        return "unknown: rank 0 said no peak"
    peak = report.peak.flops_per_second / 1e9
    label = PEAK_LABELS.get(report.peak.origin, report.peak.origin)
    if report.mfu_percent is None:
        return f"none: the trainer computes less than the plan counts (peak {peak:,.1f} GFLOP/s)"
    return f"{report.mfu_percent:.1f}% of {peak:,.1f} GFLOP/s ({label})"
