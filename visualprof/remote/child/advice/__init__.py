"""Advice: convert, compare and measure each candidate next to the original model on the target machine.

candidates.py  the conversions, runtimes and options that are tried
rules.py       verdicts from measured rounds
errors.py      differences between outputs
sets.py        the inputs on which outputs are compared
worker.py      one process per candidate
process.py     start, limits and end of the processes
stage.py       the order of all steps, and `advice.json`

Definitions: docs/advice.md.
"""
