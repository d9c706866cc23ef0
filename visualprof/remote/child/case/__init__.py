"""Run a benchmark case in the interpreter of its runtime.

steps.py    the seven steps, their records, and the result
code.py     the case's code, and the FlagPerf modules that it may import
forward.py  default forward functions, and timers around the data and the engine
task.py     the task, and the check of its requirements
summary.py  fields of the result that are derived from others
logger.py   a replacement for loguru, which FlagPerf cases call
"""
