"""Simulated lives: many under faults, one killed at every port call, and bugs planted on purpose.

May live here: campaigns, planted bugs, their tests. May not: the real clock, real processes.
"""
