"""A simulated job on a cluster, written as its ranks' profiles, with what was planted in it known."""
