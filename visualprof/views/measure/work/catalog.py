"""The formula of every operator that has one, and what a call does by it."""

from __future__ import annotations

import msgspec

from visualprof.reader.patterns import pattern
from visualprof.views.measure.operator_call import Call, Unknown
from visualprof.views.measure.work import formulas, serving_formulas
from visualprof.views.measure.work.formulas import Formula, Work

_FORMULAS = {**formulas.FORMULAS, **serving_formulas.FORMULAS}


_PROFILED = pattern(r"^sglang_profiler::attention_(\w+)_\d+$")  # around a function of aiter.ops.attention


def formula_of(name: str) -> Formula | None:
    """The formula of an operator; that in place (`aten::add_`) has that of the other."""
    name = _called(name)
    return _FORMULAS.get(name) or _FORMULAS.get(name.removesuffix("_"))


def is_attention_of_requests(name: str) -> bool:
    """Does its work depend on lengths that no shape has?"""
    return _called(name) in serving_formulas.ATTENTION


def _called(name: str) -> str:
    """The operator; SGLang's profiler of shapes has a name of its own for what torch does not register."""
    profiled = _PROFILED.match(name)
    return f"aiter::{profiled[1]}" if profiled else name


def work_of(call: Call) -> Work | None:
    """What a call does; None where there is no formula, or the profile lacks what it needs."""
    formula = formula_of(call.name)
    try:
        return formula(call) if formula else None
    except (Unknown, LookupError, ArithmeticError, TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return None  # shapes that no such operator takes, too
