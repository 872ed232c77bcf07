"""A whole trainer in plain Python, written against `contract` alone: the example to start from.

Each file is one idea, in the order in which a rank meets them: settings, telemetry, watchdog,
plans, gang, texts, learner, restore, control, saver, ends. The loop: `minimal_trainer.py`
in the folder above, which makes this package importable as `minimal`.

May live here: what a trainer owes the controller, and a learner small enough to read. May not:
imports other than `contract` and the standard library, hooks for tests.
"""
