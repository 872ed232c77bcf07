"""Tests, mirroring the packages.

May live here: tests, stateful fakes, builders. May not: mocks where a fake can stand, bare sleeps.
"""
