"""Layouts of charts: which tags share a chart, for TensorBoard's plugin `custom_scalars`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from visualprof.capture.log.fields import content
from visualprof.capture.log.messages import text

TAG = "custom_scalars__config__"


def custom_scalars(layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> bytes:
    """Return the value of a layout.

    Args:
        layout: Per category and title of a chart, `["Multiline", patterns]` or `["Margin", [tag, lower, upper]]`.

    Raises:
        ValueError: A chart is of another kind.
    """
    return text(
        TAG, b"".join(content(2, _category(title, charts)) for title, charts in layout.items()), "custom_scalars"
    )


def _category(title: str, charts: Mapping[str, Sequence[Any]]) -> bytes:
    return content(1, title) + b"".join(content(2, _chart(name, *chart)) for name, chart in charts.items())


def _chart(title: str, kind: str, tags: Sequence[str]) -> bytes:
    if kind == "Multiline":
        return content(1, title) + content(2, b"".join(content(1, tag) for tag in tags))
    if kind != "Margin" or len(tags) != 3:
        raise ValueError(f"the chart {title!r} must be Multiline, or Margin with three tags")
    return content(1, title) + content(3, content(1, b"".join(content(i, tag) for i, tag in enumerate(tags, 1))))
