"""What every implementation of a port must do: one suite, run on the real adapter and on the fake.

May live here: suites, and the stages that set the same scene in both worlds. May not: what only
one implementation has; that is tested beside it.
"""
