"""Measurements with their limits, compared with baselines."""
