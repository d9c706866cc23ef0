"""Two runs compared: what became of a step, and which rows explain it. docs/diff.md, ADR 52.

`side` condenses a trace to what is compared, `match` finds rows that a person would call the same, `sureness` tells
change from noise, `compare` makes the answer. A side is kept like a view's answer: pairs of known runs cost little.
"""
