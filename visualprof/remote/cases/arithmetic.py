"""Evaluate arithmetic such as `2 * 4.09e9`: parsed and bounded, never evaluated by Python."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

from visualprof.messages import msg

MAX_CHARACTERS, MAX_DEPTH = 200, 20
OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}


def evaluate(expression: object) -> float:
    """Return the value of numbers with + - * / ** and parentheses, in floating point.

    Raises:
        ValueError: The expression is anything else, too long, too deep, or not finite.
    """
    if isinstance(expression, (int, float)) and not isinstance(expression, bool):
        return _finite(float(expression), expression)
    if not isinstance(expression, str) or len(expression) > MAX_CHARACTERS:
        raise ValueError(
            msg(
                "cases.no_arithmetic_expression_up",
                f"{str(expression)[:60]!r} is not an arithmetic expression of up to {MAX_CHARACTERS} characters",
            )
        )
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body, MAX_DEPTH)
    except (SyntaxError, ArithmeticError, RecursionError, MemoryError, ValueError) as error:
        reason = str(error) if type(error) is ValueError else type(error).__name__
        raise ValueError(msg("cases.no_value", f"{expression[:60]!r} has no value: {reason}")) from None
    return _finite(value, expression)


def _value(node: ast.expr, depth: int) -> float:
    if not depth:
        raise ValueError(msg("cases.too_deep", "it is nested too deeply"))
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left, depth - 1), _value(right, depth - 1))
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as op, operand=operand):
            value = _value(operand, depth - 1)
            return -value if isinstance(op, ast.USub) else value
        case _:
            raise ValueError(
                msg(
                    "cases.numbers_parentheses_all_may",
                    "only numbers, + - * / ** and parentheses are allowed",
                )
            )


def _finite(value: float, expression: object) -> float:
    if not math.isfinite(value):
        raise ValueError(msg("cases.not_finite", f"{str(expression)[:60]!r} is not finite"))
    return value
