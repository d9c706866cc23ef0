"""Measured reports: best points, load tests, significance, regressions, levels over time."""
