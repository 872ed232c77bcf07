"""What can fail, row by row (the table of docs/chaos.md), and which faults stand for each row."""

from dataclasses import dataclass

from controller.simulate.chaos.reads import READ_PORTS


@dataclass(frozen=True)
class Row:
    """One row."""

    what: str
    faults: tuple[str, ...]
    missing: str = ""


READ_FAULTS = tuple(
    f"{kind}_{port}" for kind in ("blind", "stale", "reorder") for port in READ_PORTS
)

ROWS = (
    Row(
        "process or pod dies",
        ("kill_worker", "kill_first", "undead", "lose_shim", "lose_claim", "lame_start"),
    ),
    Row(
        "node or tray lost",
        ("reboot", "lose_shim"),
        "no node is excluded and no spare taken: the core places nothing on nodes",
    ),
    Row(
        "rack or switch fault",
        ("kill_all", "burst"),
        "no rack is moved; all ranks go at once and the gang starts again",
    ),
    Row("alive but stuck", ("freeze", "freeze_all", "hang", "hang_unwatched", "lie")),
    Row("same failure, no progress", ("poison_step", "refuse", "kill_worker")),
    Row(
        "slow rank, slow run",
        ("slow_down", "slow_spell", "drift", "speed_up"),
        "the forecast is fed; no tray is named or proposed for exclusion",
    ),
    Row("loss that is not finite", ("poison_numbers",)),
    Row(
        "loss spike, sustained",
        (),
        "no rule watches the loss; an owner's `resume_from` (in `owner`) goes back on a new line",
    ),
    Row("damaged checkpoint", ("damage_manifest", "damage_data")),
    Row(
        "silent corruption of a replica",
        ("disagree_replicas", "damage_data"),
        "the trainer's exit code is obeyed; there is no digest vote and no exclusion",
    ),
    Row("storage quota or policy", ("fill_disk", "fill_ledger")),
    Row(
        "telemetry or API server away",
        (*READ_FAULTS, "blind_all", "deafen"),
        "Prometheus is not read: telemetry comes from the ranks themselves",
    ),
    Row(
        "controller dies or is partitioned",
        (
            "kill_controller", "kill_controller_soon", "lose_controller", "overtake_controller",
            "second_controller", "cut_controller", "mute_controller", "tear_ledger",
        ),
    ),
    Row("clock, control document, machine", (
        "jump_clock_forward", "jump_clock_back", "spoil_control", "replace_control", "reboot",
    )),
    Row("owner and plan", (
        "owner", "approve", "approve_late", "approve_twice", "approve_wrong", "disagree", "reject",
        "propose_horizon", "propose_mixture", "propose_execution", "edit_deadline", "deafen",
        "split",
    )),
)  # fmt: skip
