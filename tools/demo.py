"""Tells the demo's story: gate, launch under a drill, and whether what should happen did.

Exit codes: 0 the story held, 6 other load ruined it, 1 the run failed, 130 somebody left before its
end; else those of `ctl gate`.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import yaml

from controller.cli import output
from tools.story import (
    FAILED,
    RUINED,
    STORY_HELD,
    Judgement,
    Members,
    Story,
    change_run_file,
    judge,
    list_drills,
    plan_story,
)

CTL = (sys.executable, "-m", "controller.cli.main")
SAMPLE = Path("samples/demo.yaml")
RUNS = Path("runs")
STORY = RUNS / "demo-story"
NAME = "demo"
MIB = 1024**2
INTERRUPTED = 130
HEADLINES = {
    STORY_HELD: "the story held",
    FAILED: "FAILED",
    RUINED: "NOT SHOWN: the machine was too busy",
    INTERRUPTED: "LEFT before its end",
}
RECORD_S = 10.0
"""The pacer ends within a second of its run."""
POLL_S = 0.1


def main() -> int:
    # Ctrl-C is the business of the command that runs in front; handlers are not inherited.
    signal.signal(signal.SIGINT, lambda *_: None)
    output.tell("1. the admission test: twenty steps, before anything is launched")
    gate = subprocess.run(
        [*CTL, "gate", str(SAMPLE), "-o", "json"], stdout=subprocess.PIPE, check=False
    )
    if gate.returncode:
        output.emit(gate.stdout.decode())
        return gate.returncode
    figures = json.loads(gate.stdout)
    output.emit_table(list(describe_gate(figures)))
    story = plan_story(figures["step_s"], figures["start_s"])
    output.tell("2. the story for this machine")
    output.emit_table(list(describe_story(story)))
    output.tell("3. the run; what is done to it, its controller is not told")
    file, drill = write_files(story, STORY)
    done = subprocess.run([*CTL, "launch", str(file), "--drill", str(drill)], check=False)
    output.tell("4. whether the story held")
    return tell(conclude(RUNS / NAME, story, done.returncode))


def describe_gate(figures: Mapping[str, float]) -> Sequence[tuple[str, str]]:
    """Return the gate's figures as rows."""
    told = cast("Members", figures)
    sizes = cast("Sequence[int]", told["memory_bytes"])
    drops = cast("Mapping[str, float]", told["drops_percent"])
    peak = cast("float | None", told["peak_flops_per_second"])
    label = "a GEMM measured here" if told["peak_origin"] == "measured" else told["peak_origin"]
    mfu = f"{figures['mfu_percent']:.1f}% of {peak / 1e9:,.0f} GFLOP/s ({label})" if peak else "-"
    return [
        ("verdict", f"{told['verdict']}, minimum {told['min_tokens_per_second']} tokens/s"),
        ("speed", f"{figures['tokens_per_second']:,.0f} tokens/s"),
        ("step", f"{figures['step_s']:.3f} s, p90 {figures['p90_step_s']:.3f} s"),
        ("memory", f"{', '.join(f'{size / MIB:,.0f}' for size in sizes)} MiB by rank at most"),
        ("drops", f"{drops['sender']:.2f}% at senders, {drops['receiver']:.2f}% at receivers"),
        ("MFU", mfu),
    ]


def describe_story(story: Story) -> Sequence[tuple[str, str]]:
    """Return what will happen as rows."""
    return [
        ("horizon", f"{story.steps} steps"),
        ("pace", f"{story.first_pace_s:.2f} s a step, by stopping and continuing the ranks"),
        ("crash", f"rank 1 is killed at step {story.crash_step}"),
        ("slow-down", f"{story.second_pace_s:.2f} s a step from step {story.slow_step} on"),
        ("deadline", f"{story.deadline_s:.0f} s from the launch, {story.reserve_s:.0f} s reserve"),
        ("consent", "declared beforehand: mode auto, within the first quarter of the tokens"),
        ("time", f"about {story.total_s / 60:.0f} minutes"),
    ]


def write_files(story: Story, folder: Path) -> tuple[Path, Path]:
    """Write run file and drill; the deadline counts from now."""
    folder.mkdir(parents=True, exist_ok=True)
    declared = yaml.safe_load(SAMPLE.read_text())
    due = datetime.now(UTC) + timedelta(seconds=story.deadline_s)
    changed = change_run_file(declared, story, due.isoformat(timespec="seconds"))
    file, drill = folder / "demo.yaml", folder / "drill.yaml"
    file.write_text(yaml.safe_dump(changed, sort_keys=False))
    drill.write_text(yaml.safe_dump(list_drills(story), sort_keys=False))
    return file, drill


def conclude(run_dir: Path, story: Story, launch_code: int) -> Judgement:
    """Return the judgement on what the run left."""
    summary = read_json(run_dir / "summary.json")
    if summary is None and launch_code not in (0, INTERRUPTED):
        return Judgement(FAILED, [f"ctl launch ended with {launch_code}"])
    if summary is None:
        words = f"the run goes on. Next: ctl status {run_dir.name} --watch"
        return Judgement(INTERRUPTED, [words])
    return judge(summary, await_paces(run_dir / "drills.jsonl", story), story)


def await_paces(path: Path, story: Story) -> Sequence[Members]:
    """Return the pacer's records; it ends a moment after the run."""
    deadline = time.monotonic() + RECORD_S
    last = f"{float(str(list_drills(story)[-1]['stepS'])):g}"
    while True:
        lines = path.read_text().splitlines() if path.exists() else []
        found = [it for it in map(json.loads, lines) if "pacedSteps" in it]
        if any(it["stepS"] == last for it in found) or time.monotonic() > deadline:
            return found
        time.sleep(POLL_S)


def read_json(path: Path) -> Members | None:
    """Return the object in a file, None where there is none."""
    try:
        return cast("Members", json.loads(path.read_text()))
    except (OSError, ValueError):
        return None


def tell(judgement: Judgement) -> int:
    """Print the judgement and return its exit code."""
    output.emit(HEADLINES[judgement.code])
    output.emit("\n".join(f"  {sentence}" for sentence in judgement.sentences))
    return judgement.code


if __name__ == "__main__":
    sys.exit(main())
