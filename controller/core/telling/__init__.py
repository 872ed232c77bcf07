"""What is told of a run: status, summary, explanations, decisions made again.

May live here: pure readings of memory, records and step logs, for people. May not: I/O, clocks,
anything that a decision rests on; no rule of a track imports this.
"""
