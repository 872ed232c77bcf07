"""Drives the core: observe, decide, act, again.

May live here: the order of port calls, leadership, the loop. May not: rules about the run, or
anything that knows how a port reaches the world.
"""
