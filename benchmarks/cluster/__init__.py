"""A simulated job on a cluster, written as its ranks' profiles, with the faults that were injected."""
