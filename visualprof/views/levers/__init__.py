"""Levers: changes of code that the view `plan` tries. Each is an entry of `catalog` (docs/plan.md)."""
