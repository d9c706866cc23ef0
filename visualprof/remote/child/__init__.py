"""Run in the runtime's own interpreter: load a model, measure it, profile it.

Only the standard library, numpy and the runtime are available.

main.py     the entry point: runs one stage of one task, reports events to the agent, classifies failures
task.py     the task of a work folder, and the log of events
inputs.py   shapes and values of the inputs at each point of a sweep (one batch size)
measure.py  the timed loop around a session, and statistics of its latencies
load.py     concurrent streams, arrivals, and the search for the highest rate that keeps a latency limit
convert.py  the stages that convert a model
case/       the seven steps of a benchmark case
advice/     the stage that tries conversions and runtimes against the original model
search/     the stage that searches for the best runtime settings
host.py     load of the machine during a measurement, and peak memory of this process
energy.py   energy of the device; rapl.py reads the counters of processors
"""
