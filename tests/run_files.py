"""Run files for tests: one that is right, and every way in which one can be wrong."""

from pathlib import Path

from contract.config import SourceFiles
from contract.plan import Plan
from controller.core.declared.planning import make_genesis
from controller.core.declared.run_file import parse_run_file

GOOD = """\
apiVersion: steersman.dev/v1alpha1
kind: TrainingRun
metadata:
  name: probe
spec:
  fleet: {kind: local, processes: 2, devicesPerProcess: 1}
  trainer: {command: [python, -c, pass]}
  model: {preset: tiny}
  data:
    sources:
      code: {kind: files, paths: [text.txt], heldOutPercent: 20}
      docs: {kind: files, paths: [text.txt], heldOutPercent: 20}
    blockTokens: 2_048
    mixture:
      - {fromPercent: 0, parts: {code: 20, docs: 12}}
      - {fromPercent: 80, parts: {code: 8, docs: 24}}
  budget: {horizonTokens: 51_200}
  batch: {tokensPerStep: 1_024}
  schedule:
    warmupPercent: 5
    peakLearningRate: {matrix: "0.5", other: "0.5"}
    finalPercent: 5
    context: [{fromPercent: 0, length: 64}]
  evaluation: {everySteps: 25, sequences: 2, finalSequences: 4}
  checkpoints: {everySteps: 10, keep: 3}
  faults: {cascade: 5s}
"""
"""50 steps; text.txt must lie beside it."""

TEXT = "Forty two words of text, again and again, with a few other letters: quick brown foxes.\n"

BAD: tuple[tuple[str, str, str, str], ...] = (
    # rule, what is replaced, by what, what the message must hold
    ("yaml.syntax", "metadata:\n  name: probe", "metadata: [\n  name", "not YAML"),
    (
        "yaml.duplicate",
        "  batch: {",
        "  seed: 1\n  seed: 2\n  batch: {",
        "spec.seed: it stands twice",
    ),
    ("yaml.float", "finalPercent: 5\n", "finalPercent: 5.5\n", "spec.schedule.finalPercent is 5.5"),
    (
        "yaml.alias",
        "heldOutPercent: 20}\n    blockTokens",
        "heldOutPercent: &a 20, x: *a}\n    blockTokens",
        "alias",
    ),
    ("yaml.digits", "keep: 3", "keep: " + "9" * 5000, "at most 30 digits"),
    ("yaml.depth", "keep: 3", "keep: " + "[" * 1500 + "]" * 1500, "levels of nesting"),
    ("yaml.size", "keep: 3", "keep: 3 #" + "x" * (1 << 18), "at most 262,144"),
    ("yaml.many", "keep: 3", "keep: [" + "1," * 30_000 + "]", "at most 30,000 values"),
    ("yaml.documents", "kind: TrainingRun", "kind: TrainingRun\n---\na: 1", "begins in line 3"),
    ("yaml.tag", "keep: 3", "keep: !!int 3", "tags (!name) are refused"),
    ("yaml.tag", "keep: 3", "keep: !!python/object/apply:os.system [ls]", "tags (!name)"),
    ("yaml.merge", "keep: 3", "keep: 3, <<: {everySteps: 4}", "merges (<<)"),
    ("yaml.name", "keep: 3", "keep: 3, 7: 3", 'write "7" in quotes'),
    ("yaml.name", "keep: 3", "keep: 3, null: 3", 'write "null" in quotes'),
    ("yaml.name", "keep: 3", "keep: 3, ? [a, b] : 3", "not a list or mapping"),
    ("yaml.octal", "keep: 3", "keep: 010", "write 10"),
    ("yaml.hidden", "name: probe", "name: pro\u202ebe", "U+202E in line 4, column 12"),
    ("yaml.control", "name: probe", "name: pro\x1b[2Jbe", "U+001B in line 4, column 12"),
    ("yaml.syntax", "  name: probe", "\tname: probe", "indent by spaces"),
    ("yaml.depth", "keep: 3", "keep: " + "[" * 30 + "]" * 30, "levels of nesting"),
    ("yaml.control", "[python, -c, pass]", '[python, "\\0", pass]', "control characters"),
    ("value.decimal", 'matrix: "0.5"', f'matrix: "0.{"1" * 5000}"', "at most 60 characters"),
    ("field.unknown", "checkpoints: {every", "checkpionts: {every", 'Did you mean "checkpoints"?'),
    ("field.unknown", "keep: 3", "kep: 3", 'spec.checkpoints: unknown field "kep"'),
    (
        "field.unknown",
        "preset: tiny",
        "preset: tiny, expertsPerTokens: 2",
        'Did you mean "expertsPerToken"?',
    ),
    ("field.missing", "  batch: {tokensPerStep: 1_024}\n", "", "spec.batch: it must be given"),
    (
        "field.type",
        "keep: 3",
        "keep: three",
        'spec.checkpoints.keep is "three"; it must be a whole number',
    ),
    ("value.choice", "kind: local", "kind: cloud", "'local'"),
    ("value.choice", "v1alpha1", "v2", "apiVersion"),
    ("value.bound", "keep: 3", "keep: 1", "at least 2"),
    ("value.bound", "processes: 2", "processes: 0", "at least 1"),
    ("value.percent", "fromPercent: 80", "fromPercent: 120", "is 120; it must be 0 to 100"),
    (
        "value.percent",
        "  faults:",
        "  contingency: {floorPercent: 120}\n  faults:",
        "spec.contingency.floorPercent is 120; it must be 1 to 100",
    ),
    ("value.duration", "cascade: 5s", "cascade: 5 seconds", '"15m"'),
    ("value.instant", "  faults:", "  deadline: {at: tomorrow}\n  faults:", "instant"),
    (
        "value.instant-offset",
        "  faults:",
        "  deadline: {at: 2099-01-01T00:00:00}\n  faults:",
        "offset",
    ),
    ("value.decimal", 'matrix: "0.5"', 'matrix: "1e-3"', "decimal string"),
    ("value.name", "name: probe", "name: ../probe", "metadata.name"),
    ("value.name", "name: probe", "name: pr\u043ebe", "here is U+043E"),
    ("value.bound", "tokensPerStep: 1_024", f"tokensPerStep: {10**19}", f"at most {10**18}"),
    (
        "value.decimal",
        "  faults:",
        f'  optimizer: {{epsilon: "0.{"1" * 5_000}"}}\n  faults:',
        "60 characters",
    ),
    ("value.decimal", "preset: tiny", f'preset: tiny, zLoss: "0.{"1" * 99}"', "60 characters"),
    (
        "value.instant-year",
        "  faults:",
        "  deadline: {at: 9999-12-31T23:59:59-14:00}\n  faults:",
        "years 2000 to 2199",
    ),
    ("value.duration", "cascade: 5s", "cascade: 100001d", "at most 100000 days"),
    ("value.duration", "cascade: 5s", f"cascade: {'9' * 5000}d", '"15m"'),
    ("value.duration", "cascade: 5s", "cascade: 0s", "longer than nothing"),
    ("value.empty", "context: [{fromPercent: 0, length: 64}]", "context: []", "empty"),
    (
        "value.many",
        "[{fromPercent: 0, length: 64}]",
        f"[{'{fromPercent: 0, length: 64}, ' * 101}]",
        "at most 100 members",
    ),
    ("model.preset", "preset: tiny", "preset: huge", "must be one of hero, tiny"),
    ("model-kv-heads", "preset: tiny", "preset: tiny, kvHeads: 3", "kvHeads"),
    ("model-experts-per-token", "preset: tiny", "preset: tiny, expertsPerToken: 16", "experts"),
    ("model-head-dim", "preset: tiny", "preset: tiny, headDim: 18", "multiple of 4"),
    ("mesh-waves", "  faults:", "  execution: {waves: 9_999}\n  faults:", "assignments a step"),
    ("mesh-experts", "preset: tiny", "preset: tiny, experts: 15", "expert axis"),
    ("mesh-local-experts", "preset: tiny", "preset: tiny, experts: 1024", "255"),
    ("mesh-batch", "processes: 2", "processes: 3", "devices"),
    ("mesh-sequences", "tokensPerStep: 1_024", "tokensPerStep: 1_000", "multiple of the context"),
    ("fleet.expert-axis", "devicesPerProcess: 1", "devicesPerProcess: 1, expertAxis: 3", "divide"),
    ("budget.steps", "51_200", "1_024", "at least 4 steps"),
    ("budget.data", "51_200", "51_200, dataBudgetTokens: 40_000", "at most dataBudgetTokens"),
    ("schedule.warmup", "warmupPercent: 5", "warmupPercent: 60", "0 to 50"),
    ("schedule.groups", 'other: "0.5"', 'othr: "0.5"', 'Did you mean "other"?'),
    ("schedule.peak", 'matrix: "0.5"', 'matrix: "0"', "above 0"),
    ("schedule.peak", 'matrix: "0.5"', f'matrix: "1{"0" * 39}"', "binary32"),
    (
        "schedule.context",
        "[{fromPercent: 0, length: 64}]",
        "[{fromPercent: 0, length: 64}, {fromPercent: 50, length: 48}]",
        "divide the longest",
    ),
    ("stage.first", "{fromPercent: 0, parts", "{fromPercent: 3, parts", "starts at 0"),
    ("stage.order", "fromPercent: 80", "fromPercent: 0", "above the stage before"),
    ("stage.last", "fromPercent: 80", "fromPercent: 100", "below 100"),
    ("data.unknown-source", "code: 8, docs", "cod: 8, docs", 'Did you mean "code"?'),
    ("data.parts-sum", "code: 8, docs", "code: 9, docs", "parts sum to 33; they must sum to 32"),
    ("data.block-units", "2_048", "2_050", "multiple of the longest context"),
    ("data.block-steps", "2_048", "131_072", "whole steps only every 128 steps"),
    ("faults.heartbeat", "cascade: 5s", "heartbeat: 1m", "at least 130s"),
    ("faults.delay", "cascade: 5s", "restarts: {delay: 10m, maxDelay: 5m}", "at least delay"),
    ("checkpoints.cadence", "everySteps: 10,", "everySteps: 60,", "at most the run's 50 steps"),
    (
        "checkpoints.permanent",
        "keep: 3",
        "keep: 3, permanentEverySteps: 15",
        "multiple of everySteps",
    ),
    ("evaluation.final", "finalSequences: 4", "finalSequences: 1", "at least sequences"),
    (
        "contingency.thresholds",
        "  faults:",
        "  contingency: {clearAbovePercent: 5}\n  faults:",
        "onTimePercent",
    ),
    (
        "contingency.target",
        "  faults:",
        "  contingency: {onTimePercent: 50, targetPercent: 20}\n  faults:",
        "above onTimePercent (50)",
    ),
    (
        "contingency.floor",
        "  faults:",
        "  contingency: {floorPercent: 90, minChangePercent: 20}\n  faults:",
        "at most 80",
    ),
    (
        "contingency.window",
        "  faults:",
        "  contingency: {windowPercent: 1}\n  faults:",
        "after the warm-up only",
    ),
    (
        "contingency.deadline",
        "  faults:",
        "  contingency: {mode: propose}\n  faults:",
        "spec.deadline.at",
    ),
    # Slips: each value is allowed, and together they cannot be meant.
    ("fleet.many", "processes: 2", "processes: 2_000", "at most 1,024"),
    ("fleet.other-kind", "processes: 2", "processes: 2, racks: 2", "of kind kubernetes"),
    ("fleet.missing", "kind: local, processes: 2", "kind: kubernetes", "must be given"),
    (
        "fleet.spare-racks",
        "kind: local, processes: 2",
        "kind: kubernetes, racks: 2, traysPerRack: 2, spareRacks: 2",
        "below racks (2)",
    ),
    (
        "fleet.spare-trays",
        "kind: local, processes: 2",
        "kind: kubernetes, racks: 2, traysPerRack: 2, spareTraysPerRack: 2",
        "below traysPerRack (2)",
    ),
    (
        "fleet.rack-axis",
        "kind: local, processes: 2, devicesPerProcess: 1",
        "kind: kubernetes, racks: 2, traysPerRack: 2, devicesPerProcess: 1, expertAxis: 4",
        "divide the 2 devices of a rack",
    ),
    (
        "fleet.gate-peak",
        "devicesPerProcess: 1}",
        "devicesPerProcess: 1, peakFlopsPerDevice: 1_000_000}\n  gate: {minTokensPerSecond: 99}",
        "at 100% MFU",
    ),
    ("seed.size", "  faults:", "  seed: 4_294_967_296\n  faults:", "32 bits"),
    ("model.vocabulary", "preset: tiny", "preset: tiny, vocabulary: 128", "a byte is a token"),
    ("model.router-scale", "preset: tiny", 'preset: tiny, routerScale: "0.0"', "above 0"),
    ("model.counted-heads", "preset: tiny", "preset: tiny, fullKvHeadsCounted: 5", "heads (4)"),
    ("optimizer.beta", "  faults:", '  optimizer: {beta2: "1.5"}\n  faults:', "below 1"),
    ("optimizer.epsilon", "  faults:", '  optimizer: {epsilon: "0"}\n  faults:', "above 0"),
    ("trainer.shell", "[python, -c, pass]", '[python, -c, pass, "&&", ls]', "no shell"),
    ("budget.many-steps", "51_200", "1_000_000_000_000", "976,562,500 steps"),
    ("schedule.tiny-peak", 'matrix: "0.5"', f'matrix: "0.{"0" * 40}1"', "rounded to nothing"),
    (
        "schedule.decay-peak",
        "finalPercent: 5\n",
        'finalPercent: 5\n    weightDecay: {peak: "11"}\n',
        "at most 10",
    ),
    (
        "schedule.context-order",
        "[{fromPercent: 0, length: 64}]",
        "[{fromPercent: 0, length: 64}, {fromPercent: 50, length: 32}]",
        "above the length of the stage before (64)",
    ),
    (
        "schedule.context-steps",
        "[{fromPercent: 0, length: 64}]",
        "[{fromPercent: 0, length: 32}, {fromPercent: 1, length: 64}]",
        "begins at step 0, as the stage before does",
    ),
    ("schedule.warmup-stage", "fromPercent: 80", "fromPercent: 5", "schedule.warmupPercent (5)"),
    ("data.block-horizon", "2_048", "102_400", "no block would be whole"),
    ("data.block-size", "2_048", "128_000_000", "1,000,000 units of 64 tokens"),
    (
        "data.unread-source",
        "    blockTokens",
        "      mine: {kind: files, paths: [text.txt]}\n    blockTokens",
        "spec.data.sources.mine: no stage names it",
    ),
    ("data.same-stage", "code: 8, docs: 24", "code: 20, docs: 12", "it would change nothing"),
    (
        "data.twin-alternatives",
        "  budget:",
        "    alternatives:\n      a: [{fromPercent: 0, parts: {code: 32}}]\n"
        "      b: [{fromPercent: 0, parts: {code: 32}}]\n  budget:",
        "the same as a",
    ),
    ("data.twice", "paths: [text.txt]", "paths: [text.txt, ./text.txt]", "stands there twice"),
    ("data.secret", "paths: [text.txt]", "paths: [text.txt, ../.ssh/config]", "a secret"),
    ("data.shell", "paths: [text.txt]", "paths: [~/text.txt]", "no shell reads it"),
    ("data.glob", "paths: [text.txt]", "paths: ['**.txt']", "a whole part of a path"),
    ("data.long-path", "paths: [text.txt]", f"paths: [{'x' * 256}]", "longer than 255 bytes"),
    ("data.whole-machine", "paths: [text.txt]", "paths: [/**/*]", "not to text"),
    ("data.held-out-path", "heldOutPercent: 20", "heldOut: [text.txt]", "not be trained on"),
    ("faults.cause", "cascade: 5s", "restarts: {perCause: {storages: 1}}", 'mean "storage"'),
    ("faults.drain", "cascade: 5s", "deadlines: {drain: 1m}", "at least saveBlock (2m)"),
    ("faults.step-factor", "cascade: 5s", "stepFactor: 1", "at least 2"),
    ("faults.patience", "cascade: 5s", "deadlines: {firstStep: 8d}", "firstStep is 8d"),
    ("faults.window", "cascade: 5s", "restarts: {window: 10m}", "at least maxDelay (15m)"),
    ("checkpoints.no-permanent", "keep: 3", "keep: 3, permanentEverySteps: 60", "50 steps"),
    ("evaluation.cadence", "everySteps: 25", "everySteps: 51", "at most the run's 50 steps"),
    ("record.size", "  faults:", f"  record: {{goals: [{'x' * 9_999}]}}\n  faults:", "4,000"),
    ("record.many", "  faults:", f"  record: {{goals: [{'x, ' * 101}]}}\n  faults:", "100 texts"),
    ("record.link", "  faults:", '  record: {links: ["javascript:x"]}\n  faults:', "https://"),
    (
        "contingency.window-floor",
        "  faults:",
        "  contingency: {windowPercent: 75}\n  faults:",
        "below floorPercent (75)",
    ),
    (
        "contingency.revisions",
        "  faults:",
        "  deadline: {at: 2099-01-01T00:00:00Z}\n"
        "  contingency: {mode: propose, maxRevisions: 0}\n  faults:",
        "could never act",
    ),
    (
        "contingency.clean-steps",
        "  faults:",
        "  deadline: {at: 2099-01-01T00:00:00Z}\n"
        "  contingency: {mode: propose, minCleanSteps: 13}\n  faults:",
        "12 steps of the window",
    ),
    (
        "contingency.midtrain",
        "  faults:",
        "  contingency: {midtrainMinTokens: 10_241}\n  faults:",
        "what the last mixture stage has (10240)",
    ),
)
"""Told by the text alone."""

BAD_HERE: tuple[tuple[str, str, str, str], ...] = (
    ("deadline.past", "  faults:", "  deadline: {at: 2001-01-01T00:00:00Z}\n  faults:", "future"),
    (
        "deadline.reserve",
        "  faults:",
        "  deadline: {at: 2035-01-01T00:00:00Z, reserve: 99999d}\n  faults:",
        "shorter than what is left",
    ),
    (
        "deadline.peak",
        "devicesPerProcess: 1}",
        "devicesPerProcess: 1, peakFlopsPerDevice: 1}\n  deadline: {at: 2099-01-01T00:00:00Z}",
        "too long for this deadline",
    ),
    (
        "deadline.evaluations",
        "  faults:",
        "  deadline: {at: 2099-01-01T00:00:00Z}\n"
        "  contingency: {mode: propose, settle: 99999d}\n  faults:",
        "could say nothing before it",
    ),
    (
        "deadline.cool-down",
        "  faults:",
        "  deadline: {at: 2099-01-01T00:00:00Z}\n"
        "  contingency: {mode: propose, coolDown: 99999d}\n  faults:",
        "only the first could be made",
    ),
    ("trainer.command", "[python, -c, pass]", "[pyton3000, x]", "PATH"),
    ("trainer.file", "[python, -c, pass]", "[python, gone.py]", "no such file"),
    ("data.kind", "kind: files", "kind: filez", "one of"),
    ("data.missing", "paths: [text.txt]", "paths: [gone.txt]", "at least one file"),
    ("data.short", "paths: [text.txt]", "paths: [short.txt]", "one unit of the longest context"),
    (
        "data.declared",
        "{kind: files, paths: [text.txt], heldOutPercent: 20}",
        "{kind: declared, tokens: 100_000}",
        "for `ctl simulate` only",
    ),
    ("data.empty", "paths: [text.txt]", "paths: [empty.txt]", "no text"),
    ("data.option", "heldOutPercent: 20", "heldOutPercents: 20", "known are"),
    ("data.held-out", "heldOutPercent: 20", "heldOutPercent: 90", "1 to 50"),
    ("data.paths", "paths: [text.txt]", "paths: text.txt", "list of paths"),
    ("data.epochs", "51_200", "5_120_000", "contingency.maxEpochs"),
    ("evaluation.sequences", "finalSequences: 4", "finalSequences: 4_000", "held-out"),
)
"""Told by this machine, too."""


def write_good(folder: Path, name: str = "run.yaml") -> Path:
    """Write the right run file and its text; return its path."""
    (folder / "text.txt").write_text(TEXT * 600)
    (folder / "empty.txt").write_text("")
    (folder / "short.txt").write_text("short")
    path = folder / name
    path.write_text(GOOD)
    return path


def spoil(text: str, old: str, new: str) -> str:
    """Replace every `old`, which must be there."""
    assert old in text, old
    return text.replace(old, new)


def some_sources() -> dict[str, SourceFiles]:
    """Return stores of both sources, as a launch would have written them."""
    files = SourceFiles(
        train="data/x/train.txt",
        heldout="data/x/heldout.txt",
        train_tokens=100_000,
        heldout_tokens=20_000,
        train_sha256="1" * 64,
        heldout_sha256="2" * 64,
    )
    return {"code": files, "docs": files}


def good_plan(text: str = GOOD) -> Plan:
    """Return the first plan of a run file."""
    return make_genesis(parse_run_file(text), "u", some_sources())
