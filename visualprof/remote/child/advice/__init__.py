"""Advice: every candidate is converted, compared and measured beside the original on the machine that it is for.

`rules`: verdicts; `errors`: how outputs differ; `candidates`: what is tried; `worker`: one process for each of them;
`stage`: the order of it all. Definitions: docs/advice.md.
"""
