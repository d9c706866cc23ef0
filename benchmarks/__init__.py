"""Measurements, and the npm of the Python package for the page's own scripts."""
