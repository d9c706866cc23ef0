"""Measures models on other machines: a queue on the server's side, agents that lease its tasks, and backends.

protocol.py   the words that both sides share
backends/     one file a runtime: how to load a model, run it once, profile it
child/        what runs in the runtime's own interpreter: the measuring
agent/        the agent: asks for work, guards the child, reports
queue/        the server's side: database, leases, store of files, ingest into the log directory

The agent's side (protocol, backends, child, agent) needs the standard library, psutil and numpy, and the child's only
the first and the last. It imports no other part of visualprof.
"""
