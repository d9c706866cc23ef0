"""Device work, and the operators that launched it."""
