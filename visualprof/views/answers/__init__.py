"""Answers of views: typed columns, tables, charts, and their JSON."""
