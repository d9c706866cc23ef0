"""The process on a machine that measures: leases tasks over HTTP, runs each in a child, sends the result.

command -> agent (register, heartbeat, lease) -> task (one task: fetch, stages, upload, finish)
task -> guard + sandbox (the child), events (what it says), monitor (the machine meanwhile), shipper (log and points)
Standard library and psutil; pynvml where there is one.
"""
