"""Captured CUDA graphs: assign the kernels of one launch to operators, using the trace of the graph's capture."""
