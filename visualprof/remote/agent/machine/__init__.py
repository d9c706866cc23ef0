"""The machine: what it is, what it has, what it does meanwhile."""
