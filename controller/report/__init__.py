"""The page that a run leaves for people: what happened, what was forecast, what was proven.

May live here: pages, text, numbers and pictures of evidence that the core gathers into plain data;
matplotlib, here and nowhere else. `__main__`, the process that writes them, alone reads a run.
May not: the clock, decisions, or anything that changes a run.
"""
