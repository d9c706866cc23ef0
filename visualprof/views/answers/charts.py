"""Charts as ECharts options: numbers in ns and bytes, texts as tokens.

The web UI replaces strings that start with "@": "@t:KEY" by a text, "@c:NAME" by a color, "@f:KIND" by a formatter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from visualprof.views.answers.kinds import Column

Option = dict[str, Any]

_SCALES: dict[str, Option] = {"log": {}, "log2": {"logBase": 2}, "value": {"type": "value"}}


def pie(slices: Iterable[tuple[str, float]], unit: str = "ns", colors: bool = False, top: int = 0) -> Option:
    """Return a ring chart of named values.

    Args:
        slices: Pairs (name or token, value). Zeros are left out.
        unit: Kind of the values, for the formatter of the web UI.
        colors: Color each slice by the last part of its token.
        top: Number of slices to keep; the rest are added up. 0 keeps all.
    """
    data = sorted(((name, value) for name, value in slices if value > 0), key=lambda item: -item[1])
    if top and len(data) > top:
        data = [*data[:top], ("@t:chart.rest", sum(value for _, value in data[top:]))]
    items = [{"name": name, "value": _number(value), **(_color(name) if colors else {})} for name, value in data]
    ring = {"type": "pie", "radius": ["45%", "75%"], "label": {"show": False}, "data": items}
    return {"series": [ring], "tooltip": {"trigger": "item", "valueFormatter": f"@f:{unit}"}, "legend": _legend()}


def bars(
    names: Sequence[str] | Column, series: Sequence[tuple[str, Column]], unit: str = "ns", stack: bool = True
) -> Option:
    """Return a bar chart over names.

    Args:
        names: Names of the bars.
        series: Pairs (token or name, values).
        unit: Kind of the values.
        stack: Stack the series.
    """
    drawn = [
        {
            "type": "bar",
            "name": name,
            "data": [_number(value) for value in values],
            "barMaxWidth": 48,
            **_color(name),
            **({"stack": "all"} if stack else {}),
        }
        for name, values in series
    ]
    return {
        "series": drawn,
        "tooltip": {"trigger": "axis", "valueFormatter": f"@f:{unit}"},
        "legend": _legend(),
        "xAxis": {"type": "category", "data": list(names)},
        "yAxis": _axis("value", unit),
    }


def lines(
    series: Sequence[tuple[str, Column, Column]], units: tuple[str, str], stack: bool = False, steps: bool = True
) -> Option:
    """Return a line chart over numbers. NaN is a gap.

    Args:
        series: Triples (token or name, x, y). The last part of the token gives the color.
        units: Kinds of x and y.
        stack: Stack the lines as filled areas.
        steps: Hold each value until the next point, as for counters.
    """
    drawn: list[Option] = [
        {
            "type": "line",
            "name": name,
            "data": [[_number(a), _finite(b)] for a, b in zip(x, y, strict=True)],
            "showSymbol": False,
            **_color(name),
            **({"step": "end"} if steps else {}),
            **({"stack": "all", "areaStyle": {"opacity": 0.7}} if stack else {}),
        }
        for name, x, y in series
    ]
    x, y = (_axis("value", unit) for unit in units)
    return {"series": drawn, "tooltip": {"trigger": "axis"}, "legend": _legend(), "xAxis": x, "yAxis": y}


def scatter(
    series: Sequence[tuple[str, Sequence[Option]]],
    fields: Sequence[tuple[str, str]],
    extra: Sequence[Option] = (),
    scales: tuple[str, str] = ("log", "log"),
) -> Option:
    """Return a scatter chart, by default with logarithmic axes.

    Args:
        series: Pairs (name, points). A point has `name`, `id`, `value` (x, y, further numbers) and `symbolSize`.
        fields: Pair (token, unit) of each number in `value`, for the tooltip.
        extra: Further series of ECharts, drawn in the same chart.
        scales: Scales of x and y: "log", "log2" or "value".
    """
    drawn = [*({"type": "scatter", "name": name, "data": list(points)} for name, points in series), *extra]
    shown = [{"name": token, "formatter": f"@f:{unit}"} for token, unit in fields]
    x, y = (
        {**_axis("log", unit), **_SCALES[scale], "name": token}
        for (token, unit), scale in zip(fields, scales, strict=False)
    )
    tooltip = {"trigger": "item", "fields": shown}
    return {"series": drawn, "tooltip": tooltip, "legend": _legend(), "xAxis": x, "yAxis": y}


def line_through(name: str, points: Sequence[Option], style: str = "solid") -> Option:
    """Return the line through the points of a scatter series, in its color."""
    return {
        "type": "line",
        "name": name,
        "data": [point["value"][:2] for point in points],
        "showSymbol": False,
        "silent": True,
        "lineStyle": {"width": 1.5, "type": style},
    }


def _axis(kind: str, unit: str) -> Option:
    return {"type": kind, "axisLabel": {"formatter": f"@f:{unit}"}}


def _legend() -> Option:
    return {"type": "scroll"}


def _color(name: str) -> Option:
    """Return the color option of a token; {} for other names, which have the default colors."""
    return {"itemStyle": {"color": f"@c:{name.rpartition('.')[2]}"}} if name.startswith("@t:") else {}


def _finite(value: Any) -> float | None:
    number = _number(value)
    return None if isinstance(number, float) and not np.isfinite(number) else number


def _number(value: Any) -> float:
    return cast("float", value.item() if isinstance(value, np.generic) else value)
