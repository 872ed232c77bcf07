"""Decides; never acts.

May live here: pure functions and frozen data. May not: clocks, randomness, I/O, logging.
"""
