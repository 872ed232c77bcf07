"""Lives under faults, for those who work on the core.

May live here: what goes wrong, what must hold all the same, campaigns. May not: run files, real
adapters.
"""
