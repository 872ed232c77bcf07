"""The command line: parse, call, print.

May live here: one thin file per group of verbs, their procedures, `verbs.py` (which loads a
procedure when its verb is called), `deps.py` (the only place that builds adapters) and `output.py`
(the only printer). Imports stand inside functions in `verbs.py` and `deps.py` only, so that
`ctl --help` starts at once. May not: decisions about a run.
"""
