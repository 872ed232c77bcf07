"""The command line: parse, call, print.

May live here: one thin file per group of verbs, their procedures, `deps.py` (the only place that
builds adapters, and the only one with imports inside functions, so that `ctl --help` starts at
once) and `output.py` (the only printer). May not: decisions about a run.
"""
