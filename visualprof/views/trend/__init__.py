"""Runs of one name over time, and where they changed. docs/views.md#trend.

`figures` condenses a recording or a measured size to a few numbers, `series` says what belongs together and where its
level changed.
"""
