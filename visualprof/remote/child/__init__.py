"""Runs in the runtime's own interpreter: loads a model, measures it, profiles it. Standard library, numpy, the runtime.

main.py     the entry point: one stage of one task, what it tells the agent, and what its failures are called
inputs.py   shapes and values of the inputs at each point of the sweep
measure.py  the timed loop around a session, and what its samples say
load.py     lanes, arrivals and the search for a rate, where a job asks for more than one run after another
convert.py  the stages that make another model of a model
case/      the seven steps of a benchmark case
host.py     how busy the machine was meanwhile
"""
