"""Measurements against their bars, with the baselines beside them."""
