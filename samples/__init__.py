"""Run files, drills, and a trainer without an accelerator library.

May live here: what a reader copies to begin. May not: anything that the packages import.
"""
