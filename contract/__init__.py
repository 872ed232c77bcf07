"""What the trainer and the controller agree on.

May live here: formats, exact arithmetic, names. May not: I/O, clocks, any library but pydantic.
"""

__version__ = "0.1.0"
"""Of the whole distribution: what `ctl --version` says and the wheel is called by."""
