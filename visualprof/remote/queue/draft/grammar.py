"""Text formats of sizes, dimensions and numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from visualprof.messages import msg
from visualprof.remote.queue.check.limits import MAX_SIZE, MAX_VALUES

EXAMPLES = msg("queue.example_1_64_8", "for example 1:64, 8:64:8 or 1, 2, 4")
_SCALAR = re.compile(r"\(\s*\)|\[\s*\]|（\s*）")
_BETWEEN_DIMS = re.compile(r"[\s,，×]+|(?<=\d)x(?=\d)")
SEPARATORS = re.compile(r"[\s,，、]+")
_RANGE = re.compile(r"(\d{1,18})(?::(\d{1,18})(?::\+?(\d{1,18}))?)?")
_BATCH = re.compile(r"batch|batch_?size|n|b", re.IGNORECASE)


def parse_sizes(text: str) -> list[int]:
    """Parse distinct sizes in order: 1:64 doubles up to 64, 8:64:8 or 8:64:+8 adds 8, and 1, 2, 4 is a list.

    Raises:
        ValueError: The text does not contain 1 to 64 positive sizes.
    """
    sizes: list[int] = []
    for part in filter(None, SEPARATORS.split(text)):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(msg("queue.no_size", f"{part[:40]!r} is no size"))
        first, last, step = (int(number) if number else None for number in match.groups())
        sizes += _range(first or 0, last, step)
    sizes = list(dict.fromkeys(sizes))
    if not 1 <= len(sizes) <= MAX_VALUES:
        raise ValueError(
            msg("queue.sizes_allowed_1", f"{text[:40]!r} has {len(sizes)} sizes; allowed are 1 to {MAX_VALUES}")
        )
    return sizes


def _range(first: int, last: int | None, step: int | None) -> list[int]:
    last = first if last is None else last
    if not 0 < first <= last <= MAX_SIZE or step == 0:
        raise ValueError(msg("queue.no_range_sizes_1", f"{first}:{last} is no range of sizes from 1 up"))
    if step:
        return list(range(first, last + 1, step))[: MAX_VALUES + 1]
    return [*(first << i for i in range((last // first).bit_length()) if first << i < last), last]


def sizes_text(sizes: Sequence[int]) -> str:
    """Return the shortest text for sizes."""
    span = f"{sizes[0]}:{sizes[-1]}" if len(sizes) > 2 and 0 < sizes[0] <= sizes[-1] else ""
    return span if span and parse_sizes(span) == list(sizes) else ", ".join(map(str, sizes))


def parse_dims(text: str) -> list[int | str] | None:
    """Parse dimensions: `batch, 3, 224×224`, or `()` for a scalar; None for an empty text."""
    text = text.strip()
    if _SCALAR.fullmatch(text):
        return []
    parts = filter(None, _BETWEEN_DIMS.split(text.removeprefix("[").removesuffix("]")))
    dims: list[int | str] = [int(part[:18]) if re.fullmatch(r"-?\d+", part) else part for part in parts]
    return dims or None


def dims_text(dims: Sequence[int | str]) -> str:
    """Return the text for dimensions."""
    return ", ".join(map(str, dims)) or "()"


def guess_batch_dim(shapes: Sequence[Sequence[int | str]]) -> str:
    """Return the inputs' batch dimension, by name, else the first dimension of the first input; "" without one."""
    names = [dim for dims in shapes for dim in dims if isinstance(dim, str)]
    named = [n for n in names if _BATCH.fullmatch(n)] or [n for n in names if "batch" in n.lower()]
    first = shapes[0][0] if shapes and shapes[0] else ""
    return named[0] if named else first if isinstance(first, str) else ""
