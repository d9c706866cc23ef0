"""Find the formula of an operator, and compute the work of a call."""

from __future__ import annotations

import msgspec

from visualprof.reader.patterns import pattern
from visualprof.views.measure.launches.operator_call import NotRecorded, OperatorCall
from visualprof.views.measure.work import formulas, recurrent_formulas, serving_formulas
from visualprof.views.measure.work.call_work import CallWork, Formula
from visualprof.views.measure.work.serving_attention import ATTENTION

_FORMULAS = {**formulas.FORMULAS, **recurrent_formulas.FORMULAS, **serving_formulas.FORMULAS}


_SGLANG_ATTENTION = pattern(r"^sglang_profiler::attention_(\w+)_\d+$")  # wraps a function of aiter.ops.attention


def find_formula(name: str) -> Formula | None:
    """Return the formula of an operator; in-place operators (`aten::add_`) have that of the other form."""
    name = _operator_name(name)
    return _FORMULAS.get(name) or _FORMULAS.get(name.removesuffix("_"))


def depends_on_request_lengths(name: str) -> bool:
    """Return whether the work of an operator depends on lengths that no shape contains."""
    return _operator_name(name) in ATTENTION


def _operator_name(name: str) -> str:
    """Return the operator of a name.

    SGLang's profiler uses its own names for operators that torch does not register.
    """
    match = _SGLANG_ATTENTION.match(name)
    return f"aiter::{match[1]}" if match else name


def call_work(call: OperatorCall) -> CallWork | None:
    """Return the work of a call; `None` if there is no formula, or the profile does not record what it needs."""
    formula = find_formula(call.name)
    try:
        return formula(call) if formula else None
    except (NotRecorded, LookupError, ArithmeticError, TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return None  # also for shapes that the operator cannot have
