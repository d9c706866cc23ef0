"""Trends: metrics of runs with the same name over time, and where they changed. docs/views/trend.md.

`figures` reduces a recording or a measured batch size to a few numbers. `series` groups them and finds level changes.
"""
