"""A world in virtual time that drives the real core and the real passes through stateful fakes.

May live here: the simulated trainers and ports, seeded faults, checkers of the world's truth. May
not: the real clock, real adapters, or anything that runs outside tests and planning.
"""
