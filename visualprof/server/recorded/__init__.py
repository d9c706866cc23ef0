"""Create operator calls from the calls that profiles record; one module per framework, each with `recorded_call`."""
