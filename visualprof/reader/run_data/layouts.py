"""Layouts of charts that a program logged for TensorBoard's plugin `custom_scalars`.

Definition: tensorflow/tensorboard, plugins/custom_scalar/layout.proto.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from visualprof.errors import FormatError
from visualprof.reader.protobuf import Message
from visualprof.reader.run_data.run import RunData
from visualprof.reader.run_data.samples import StoredValue

MAX_CHARTS, MAX_TAGS = 500, 100
_STRINGS = 8  # field of a tensor
MAX_PATTERN_CHARACTERS = 200


class MarginSeries(msgspec.Struct):
    """A line with a band.

    Attributes:
        value: Tag of the line.
        lower: Tag of the lower end of the band.
        upper: Tag of the upper end of the band.
    """

    value: str
    lower: str
    upper: str


class LayoutChart(msgspec.Struct):
    """A chart of a layout.

    Attributes:
        category: Title of its group.
        title: Title of the chart.
        patterns: Regular expressions of its tags.
        margins: Lines with bands.
        closed: Whether its group is closed at first.
    """

    category: str
    title: str
    patterns: list[str]
    margins: list[MarginSeries]
    closed: bool


def list_layouts(data: RunData) -> list[LayoutChart]:
    """Return the charts of the newest layout of each line. Damaged layouts have none."""
    charts: list[LayoutChart] = []
    for series in data.samples(("layout",)):
        with suppress(FormatError):
            charts += series.decode(len(series.step) - 1, parse_layout)
    return charts


def parse_layout(value: StoredValue) -> list[LayoutChart]:
    """Return the charts of a layout with at least one tag.

    Raises:
        ProtobufError: The value is damaged.
    """
    layouts = [Message(content) for content in value.body.contents(_STRINGS)]
    charts = [
        _chart(category, chart)
        for layout in layouts
        for category in layout.messages(2)
        for chart in category.messages(2)
    ]
    return [chart for chart in charts[:MAX_CHARTS] if chart.patterns or chart.margins]


def _chart(category: Message, chart: Message) -> LayoutChart:
    patterns = [text for text in chart.message(2).texts(1) if len(text) <= MAX_PATTERN_CHARACTERS]
    margins = [MarginSeries(*(series.text(field) for field in (1, 2, 3))) for series in chart.message(3).messages(1)]
    return LayoutChart(
        category=category.text(1),
        title=chart.text(1),
        patterns=patterns[:MAX_TAGS],
        margins=margins[:MAX_TAGS],
        closed=bool(category.number(3)),
    )
