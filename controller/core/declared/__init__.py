"""What the owner declares, and what follows from it before a launch.

May live here: models of the files that people write, their rules, the plan and policy made of them.
May not: I/O, clocks, anything that decides while a run goes on; no rule of a track imports this.
"""
