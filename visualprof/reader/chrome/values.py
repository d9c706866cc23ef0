"""Values of JSON that anybody may have written: what has another type than it should is unknown."""

from __future__ import annotations

import math
from typing import cast

MAX_TEXT = 500
MAX_ITEMS = 100


def items(value: object) -> list[object]:
    """A list's first 100 values; none of anything else."""
    return cast("list[object]", value)[:MAX_ITEMS] if isinstance(value, list) else []


def text(value: object) -> str:
    """A text, shortened; numbers as text; "" for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        known = number(value) if isinstance(value, float) else whole(value)
        return "" if known is None else str(known)
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def texts(value: object) -> list[str]:
    """The texts of a list."""
    return [known for each in items(value) if (known := text(each))]


def number(value: object) -> float | None:
    """A finite number, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e18 and math.isfinite(value) else None


def whole(value: object) -> int | None:
    """A whole number of 63 bits, None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 2**62 else None
    known = number(value)
    return None if known is None else round(known)
