"""Search: settings of a model are tried beside its default one until the best of them is known well enough.

`space`: which settings there are; `sampler`: which is tried next; `worker`: one process for each of them; `trial`: what
became of it; `stage`: the order of it all. Definitions: docs/search.md.
"""
