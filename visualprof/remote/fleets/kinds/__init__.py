"""Kinds of fleets, one file each."""
