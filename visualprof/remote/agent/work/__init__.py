"""One task, from its files to its result."""
