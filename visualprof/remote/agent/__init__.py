"""The process on a machine that measures: leases tasks over HTTP, runs each in a child, sends the result.

command -> daemon (registers, says that it is alive, leases) -> work/task (one task: fetch, stages, upload, finish)
machine/  what the machine is and has: runtimes, GPUs, the sandbox, processes, the monitor
link/     the way to the server: HTTP, files, the live log and points
work/     one task: the child and what it says, the result's folder, its delivery
state.py  what the agent was started with, and its folder; registration.py  who it is at its server

The standard library and psutil; pynvml where there is one.
"""
