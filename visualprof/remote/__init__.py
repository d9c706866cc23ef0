"""Measure models on other machines: a job queue on the server, agents that lease its tasks, and backends.

protocol/     messages between server and agents
backends/     one file per runtime: load a model, run it once, profile it
operators/    a single operator of a profile: as a script, and as a model
converters/   one file per model conversion
cases/        benchmark cases: their definition, and those that ship with visualprof
child/        the measuring code that runs in the runtime's own interpreter
agent/        the agent: requests work, supervises the child, reports
fleets/       an agent whose tasks another scheduler places on its nodes
queue/        the server's side: database, leases, file store, results in the log directory

An agent needs the standard library, psutil and numpy; a child needs the standard library and numpy. They import no
other part of visualprof. Fleets also need the package of their scheduler.
"""
