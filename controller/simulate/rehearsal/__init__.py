"""A declared run from launch to end in virtual time, for its owner.

May live here: fleets of racks, failures, repairs, pace, people, and what is told of them. May not:
checkers, real adapters.
"""
