"""The formula of every operator that has one, and what a call does by it."""

from __future__ import annotations

import msgspec

from visualprof.reader.patterns import pattern
from visualprof.views.measure.operator_call import NotRecorded, OperatorCall
from visualprof.views.measure.work import formulas, serving_formulas
from visualprof.views.measure.work.formulas import CallWork, Formula

_FORMULAS = {**formulas.FORMULAS, **serving_formulas.FORMULAS}


_PROFILED = pattern(r"^sglang_profiler::attention_(\w+)_\d+$")  # around a function of aiter.ops.attention


def find_formula(name: str) -> Formula | None:
    """The formula of an operator; that in place (`aten::add_`) has that of the other."""
    name = _called(name)
    return _FORMULAS.get(name) or _FORMULAS.get(name.removesuffix("_"))


def depends_on_request_lengths(name: str) -> bool:
    """Does its work depend on lengths that no shape has?"""
    return _called(name) in serving_formulas.ATTENTION


def _called(name: str) -> str:
    """The operator; SGLang's profiler of shapes has a name of its own for what torch does not register."""
    profiled = _PROFILED.match(name)
    return f"aiter::{profiled[1]}" if profiled else name


def call_work(call: OperatorCall) -> CallWork | None:
    """What a call does; None where there is no formula, or the profile lacks what it needs."""
    formula = find_formula(call.name)
    try:
        return formula(call) if formula else None
    except (NotRecorded, LookupError, ArithmeticError, TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return None  # shapes that no such operator takes, too
