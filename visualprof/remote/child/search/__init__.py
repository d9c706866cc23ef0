"""Search for runtime settings: try settings next to the default one until the best of them are known well enough.

space.py    the settings as a grid
sampler.py  the choice of the next setting
worker.py   one process per setting
bench.py    loads, compares and times settings in their processes
trial.py    the result of one setting, and the ranking of results
stage.py    the order of all steps, and `search.json`

Definitions: docs/search.md.
"""
