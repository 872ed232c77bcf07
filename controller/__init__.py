"""Decides what a run needs next, and does it.

May live here: the decision core, the ports to the outside, their adapters, the command line. May
not: accelerator libraries, or anything of the trainer.
"""
