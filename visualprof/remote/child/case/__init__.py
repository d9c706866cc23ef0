"""A benchmark case in the interpreter of its runtime.

steps.py    the seven steps, what each leaves, and the result
code.py     the case's own code, and the modules of FlagPerf's that it may import
forward.py  both forward functions of a case that has none, and clocks around its data and its engine
logger.py   the calls of loguru that FlagPerf's cases make, where loguru is not installed
"""
