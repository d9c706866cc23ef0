"""Data of the timeline: tiles, counters, and the events of a window."""
