"""Small commands for the Makefile.

May live here: housekeeping that is no part of the product. May not: anything the packages import.
"""
