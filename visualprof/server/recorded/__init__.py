"""Calls of operators as profiles record them; a file a framework, each with `recorded_call`."""
