"""The page that a run leaves for people: what happened, what was forecast, what was proven.

May live here: pages and pictures of evidence that the core gathers into plain data; matplotlib,
here and nowhere else. `__main__`, the process that writes the page, alone reads the run's files.
May not: the clock, decisions, or anything that changes a run.
"""
