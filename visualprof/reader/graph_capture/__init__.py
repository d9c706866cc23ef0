"""Captured graphs: the operators of the kernels that one call launches, from the trace of the graph's capture."""
