"""Calls of operators: their callers, call stacks and self time."""
