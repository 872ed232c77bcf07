"""Bytes of the sources, as tokens.

May live here: reading stores and checking that they are what the launch recorded. May not: which
bytes belong to which step (contract decides), devices, randomness.
"""
