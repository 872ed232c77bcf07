"""What any trainer must do, tried with real processes and without a controller.

May live here: the harness and cases that hold for every trainer. May not: a trainer's inner parts.
"""
