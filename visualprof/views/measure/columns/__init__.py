"""Arithmetic on columns that every view uses: groups, intervals, matrices, and the cache of results on a trace."""
