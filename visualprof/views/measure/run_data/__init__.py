"""Computations on run data: scalars, histograms, curves, trials and embeddings."""
