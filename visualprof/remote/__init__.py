"""Measures models on other machines: a queue on the server's side, agents that lease its tasks, and backends.

protocol/     the words that both sides share
backends/     one file a runtime: how to load a model, run it once, profile it
operators/    one operator of a profile, alone: as a script, and in the place of a model
converters/   one file a conversion of a model
cases/        benchmark cases: what they are, and those that ship
child/        what runs in the runtime's own interpreter: the measuring
agent/        the agent: asks for work, guards the child, reports
fleets/       an agent whose tasks another scheduler places on its nodes
queue/        the server's side: database, leases, store of files, ingest into the log directory

What an agent runs needs the standard library, psutil and numpy, the child the first and the last of them; it imports
no other part of visualprof. Fleets add the package of their scheduler.
"""
