"""Faults with real processes: a controller, its shims and a small trainer, killed and frozen.

May live here: the harness and the cases. May not: anything that a fake could show as well.
"""
