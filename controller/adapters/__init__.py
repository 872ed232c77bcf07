"""The outside world, one file per port.

May live here: processes, files, sockets, clocks, and retries with a bound. May not: decisions, or
anything printed.
"""
