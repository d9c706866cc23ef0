"""Replay of a recording: what its events wait for, the critical path, and the effect of changes."""
