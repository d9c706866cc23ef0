"""Questions to traces in SQL: tables over the columns of traces, run by DuckDB, closed off from files and the network.

- `schema`: names, units and definitions of all tables and columns
- `tables`, `origins`: the columns of each table, computed from a trace when a query mentions them
- `engine`: a DuckDB connection over some traces that answers one SELECT statement at a time
- `child`, `service`: the same in a disposable process, for the server
- `stored`: twenty common questions

Nothing here imports DuckDB at import time, and views and agents never import this package.
"""
