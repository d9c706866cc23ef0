"""Convert decimal microseconds to whole nanoseconds: the nearest to the number as written, half away from zero.

`time_at` and `lasting_at` of `reader/native/values.c` do the same in C. Floats are fast and accurate enough for most
times. Where they do not determine the nearest nanosecond, decimals are used.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np

from visualprof.reader.chrome.values import display_text
from visualprof.reader.trace.types import Floats, Ints

MAX_EXACT_US = 2.0**43  # up to here float64 holds microseconds with three decimal places
MAX_ROUNDABLE_US = 2.0**41  # up to here float64 determines how further decimal places round
MIN_NS, MAX_NS = 1 - 2**62, 2**62  # times beyond are clamped; the builder drops them
_MICROSECONDS = re.compile(rb'"-?\d+(?:\.\d+)? us"|null')
_UNITS_US = {"": Decimal(1), "ns": Decimal("0.001"), "us": Decimal(1), "ms": Decimal(1000), "s": Decimal(1_000_000)}
_MAX_DIGITS, _NS_STEP, _WIDE_CONTEXT = 18, Decimal("0.001"), Context(prec=60)


def microseconds_array(us: list[float | None]) -> Floats:
    """Return microseconds as floats, NaN for `None`."""
    return np.array([np.nan if v is None else v for v in us], np.float64) if None in us else np.array(us, np.float64)


def are_exact(us: Floats, text: bytes | memoryview) -> bool:
    """Return whether floats determine the nearest nanosecond of each time; `text` is their source."""
    us = np.abs(us[np.isfinite(us)])
    largest = us.max(initial=0.0)
    if largest >= MAX_ROUNDABLE_US:
        if _has_fraction(text, 1 if largest > MAX_EXACT_US else 4):
            return False
        us = us[us < MAX_ROUNDABLE_US]
    ns = (us - np.floor(us)) * 1000
    halves = np.abs(np.abs(ns - np.rint(ns)) - 0.5) <= np.spacing(us) * 500 + 1e-9
    return not halves.any()


def _has_fraction(text: bytes | memoryview, digits: int) -> bool:
    """Return whether a number has 13 digits (as `MAX_ROUNDABLE_US`) before the decimal point and `digits` after it."""
    letters = np.frombuffer(text, np.uint8)
    points = np.flatnonzero(letters[13 : len(letters) - digits] == ord(".")) + 13
    digits_around = letters[points[:, None] + np.r_[-13:0, 1 : digits + 1]]
    return bool(((digits_around >= ord("0")) & (digits_around <= ord("9"))).all(axis=1).any())


def floats_to_ns(us: Floats, missing: int) -> Ints:
    """Return nanoseconds of times for which `are_exact` holds, `missing` for NaN."""
    is_number = np.isfinite(us)
    us = np.clip(np.where(is_number, us, 0.0), MIN_NS / 1000, MAX_NS / 1000)
    whole = np.floor(us)
    ns = whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)
    return np.where(is_number, np.clip(ns, MIN_NS, MAX_NS), missing)


def decimals_to_ns(us: list[Decimal | None], missing: int) -> Ints:
    """Return nanoseconds of any times, `missing` for `None`."""
    return np.array([missing if v is None else _decimal_to_ns(v, missing) for v in us], np.int64)


def texts_to_ns(texts: list[bytes], missing: int) -> Ints:
    """Return nanoseconds of JSON texts with a unit, such as "11.317 us", `missing` for anything else."""
    if all(map(_MICROSECONDS.fullmatch, texts)):
        us = np.array([float(text[1:-4] or "nan") for text in texts], np.float64)
        if are_exact(us, b" ".join(texts)):
            return floats_to_ns(us, missing)
    return decimals_to_ns([_parse_microseconds(text) for text in texts], missing)


def _parse_microseconds(text: bytes) -> Decimal | None:
    number, _, unit = display_text(text).partition(" ")
    try:
        return Decimal(number) * _UNITS_US[unit]
    except (ArithmeticError, KeyError):
        return None


def _decimal_to_ns(us: Decimal, missing: int) -> int:
    if us and us.adjusted() > _MAX_DIGITS:
        return MAX_NS if us > 0 else MIN_NS
    ns = us * 1000
    try:
        whole = int(ns)
    except (ValueError, OverflowError):  # NaN or infinite
        return missing
    if whole != ns:
        whole = int(us.quantize(_NS_STEP, ROUND_HALF_UP, _WIDE_CONTEXT).scaleb(3, _WIDE_CONTEXT))
    return max(MIN_NS, min(MAX_NS, whole))
