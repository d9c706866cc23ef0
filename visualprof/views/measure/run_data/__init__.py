"""Computations on run data: smoothing and downsampling of scalars."""
