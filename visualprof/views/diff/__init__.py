"""Comparison of two runs: how a step changed, and which rows explain it. docs/diff.md, ADR 52.

`side` reduces a trace to the compared data, `match` pairs the rows, `confidence` separates changes from noise, and
`compare` builds the answer. Sides are cached like the answers of views, so comparing known runs is cheap.
"""
