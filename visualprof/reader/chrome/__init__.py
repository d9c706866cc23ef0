"""Trace-event JSON: pieces of a large file, typed events, tracks."""
