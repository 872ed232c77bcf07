"""What the trainer and the controller agree on.

May live here: formats, exact arithmetic, names. May not: I/O, clocks, any library but pydantic.
"""
