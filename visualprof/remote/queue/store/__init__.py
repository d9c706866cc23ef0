"""Persistence: tables, rows as values, uploaded files and results."""
