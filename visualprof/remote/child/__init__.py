"""Runs in the runtime's own interpreter: loads a model, measures it, profiles it. Standard library, numpy, the runtime.

main.py     the entry point: one stage of one task, and what its failures are called
task.py     what the agent laid down: `task.json`
events.py   what is told to the agent: `events.jsonl`
shapes.py   sizes of the inputs at each point of the sweep
feeds.py    values of the inputs
measure.py  the timed loop around a session
point.py    what a point's samples say
host.py     how busy the machine was meanwhile
"""
