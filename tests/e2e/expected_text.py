"""The expected text for a number, implemented independently of the page."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal


def _rounded(value: float | Decimal, decimals: int) -> str:
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP):,f}"


def _scaled(value: float, step: int, units: list[str]) -> str:
    rest, unit = Decimal(value), 0
    while unit < len(units) - 1 and abs(Decimal(f"{rest:.3g}")) >= step:
        rest, unit = rest / step, unit + 1
    if unit == 0 and rest == int(rest):
        text = f"{int(rest):,}"
    else:
        text = _rounded(rest, 0 if abs(rest) >= Decimal("99.95") else 1 if abs(rest) >= Decimal("9.995") else 2)
    return f"{text} {units[unit]}"


def duration(ns: float) -> str:
    """1_240_000 -> 1.24 ms."""
    return _scaled(ns, 1000, ["ns", "µs", "ms", "s"])


def ratio(value: float | None) -> str:
    """0.355 -> 35.5 %."""
    if value is None:
        return "–"
    if value == 0:
        return "0 %"
    percent = Decimal(value) * 100
    return "<0.1 %" if percent < Decimal("0.05") else f"{_rounded(percent, 1).replace('100.0', '100')} %"


def count(value: int) -> str:
    """5838 -> 5,838."""
    return f"{value:,}"
