"""What is of the current line's past, and what was abandoned."""

from contract.plan import Line
from controller.core.ancestry import last_steps, list_usable
from controller.core.lines import list_sources
from tests.builders import a_checkpoint, a_run


def forked(*steps):
    """Return a run that opened line main-2 at step 20, with checkpoints of main at `steps`."""
    run = a_run().launched().with_checkpoints(10, 20).over(40, 40, 40, 40)
    genesis = run.plan
    run.asked("resume_from", "w", step=20).pass_once()
    run.seeing(intents=[]).pass_once()
    views = [a_checkpoint(step, genesis) for step in steps]
    return run.seeing(store=run.seen["store"].model_copy(update={"checkpoints": views}))


def usable(run):
    found = list_usable(run.memory.chain, run.seen["store"].checkpoints)
    return [(it.line, it.step) for it in found]


def add(run, line, step, **changes):
    view = a_checkpoint(step, run.memory.plan, line=line, **changes)
    run.seen["store"].checkpoints.append(view)
    return run


def test_ancestor_counts_up_to_the_fork_and_the_younger_line_comes_last():
    run = forked(10, 20, 30)
    assert run.memory.plan.line.name == "main-2"
    assert usable(run) == [("main", 10), ("main", 20)]
    assert usable(add(run, "main-2", 20)) == [("main", 10), ("main", 20), ("main-2", 20)]


def test_marked_unreadable_and_foreign_ones_are_of_no_use():
    run = forked(10)
    add(run, "main-2", 25, quarantined="digest")
    add(run, "main-2", 26, plan_sha=None, manifest_sha256=None)
    add(run, "other", 27)
    assert usable(run) == [("main", 10)]


def test_line_that_left_below_an_older_fork_ends_both_there():
    run = a_run()
    lines = [("main", 0), ("main-2", 20), ("main-3", 10)]
    lineage = [Line(name=name, fork_step=fork, offset_blocks=0) for name, fork in lines]
    plan = run.plan.model_copy(update={"lineage": lineage})
    assert last_steps(plan) == {"main": 10, "main-2": 10, "main-3": 100}


def test_new_line_starts_only_where_the_controller_agrees():
    run = forked(10, 20, 30)
    add(run, "main-2", 60)
    add(run, "main-2", 100)
    sources = list_sources(run.memory, run.seen["store"])
    assert [(it.line, it.step) for it in sources] == [("main", 10), ("main", 20), ("main-2", 60)]
    for line, step, is_opened in (("main", 30, False), ("main-2", 60, True)):
        run.asked("resume_from", f"{line}{step}", step=step, line=line).pass_once()
        decision = run.seeing(intents=[]).pass_once()
        assert (decision.actions[0].verb == "publish_plan") == is_opened
