"""Validation of files and jobs."""
