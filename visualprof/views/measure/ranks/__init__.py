"""Runs of several ranks: clocks, process groups, collectives, stragglers."""
