"""The agent: a process on a machine that measures. It leases tasks over HTTP, runs each in a child and uploads results.

- `command` parses the command line and starts `daemon`, which registers, sends heartbeats and leases tasks.
- `work/` runs one task: the child and its events, the result folder, the delivery.
- `machine/` describes the machine: runtimes, GPUs, the sandbox, processes, the monitor.
- `link/` talks to the server: HTTP, file transfers, the live log and points.
- `state` holds the settings and the agent's folder; `registration` holds the agent's identity at its server.

The agent needs the standard library and psutil. It uses pynvml where that is installed.
"""
