"""Computes: the model, its training step, its data and checkpoints, and one process that runs them.

May live here: everything a rank does. May not: decisions about the run, clusters, command lines.
"""
