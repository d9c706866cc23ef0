"""Names of kernels and operators: short names, families, tensor cores, compiled graphs."""
