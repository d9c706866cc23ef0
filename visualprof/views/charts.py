"""Charts as ECharts options, declared with pyecharts: numbers in ns and bytes, texts as tokens.

A string that starts with "@" is for the page to replace: "@t:KEY" text, "@c:NAME" colour, "@f:UNIT" formatter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from visualprof.views.table import Column

Option = dict[str, object]


def pie(slices: Iterable[tuple[str, float]], unit: str = "ns", colors: bool = False, top: int = 0) -> Option:
    """A ring of named values.

    Args:
        slices: (name or token, value), zero ones are left out.
        unit: of the values, as the page formats them.
        colors: colour each by its token's last part.
        top: keep the largest so many and add up the rest; 0 keeps all.
    """
    from pyecharts import options as opts
    from pyecharts.charts import Pie

    data = sorted(((n, v) for n, v in slices if v > 0), key=lambda s: -s[1])
    if top and len(data) > top:
        data = [*data[:top], ("@t:chart.rest", sum(v for _, v in data[top:]))]
    items = [
        opts.PieItem(
            name=n,
            value=_number(v),
            itemstyle_opts=opts.ItemStyleOpts(color=f"@c:{n.rpartition('.')[2]}") if colors else None,
        )
        for n, v in data
    ]
    if not items:  # pyecharts wants at least one
        return {"series": [{"type": "pie", "data": []}], "legend": {"type": "scroll"}}
    chart = Pie().add("", items, radius=["45%", "75%"], label_opts=opts.LabelOpts(is_show=False))
    return _option(chart, unit, axis=False, trigger="item")


def bars(names: Sequence[str], series: Sequence[tuple[str, Column]], unit: str = "ns", stack: bool = True) -> Option:
    """Bars over names, one series (token or name, values) on top of the other."""
    from pyecharts import options as opts
    from pyecharts.charts import Bar

    chart = Bar().add_xaxis(list(names))
    for name, values in series:
        chart.add_yaxis(
            name,
            [_number(v) for v in values],
            stack="all" if stack else None,
            label_opts=opts.LabelOpts(is_show=False),
            itemstyle_opts=opts.ItemStyleOpts(color=f"@c:{name.rpartition('.')[2]}"),
            bar_max_width=48,
        )
    return _option(chart, unit, axis=True, trigger="axis")


def lines(
    series: Sequence[tuple[str, Column, Column]], units: tuple[str, str], stack: bool = False, steps: bool = True
) -> Option:
    """Curves over numbers, one series (token or name, x, y) each; NaN is a gap.

    Args:
        series: the curves; their colours are those of the names' last parts.
        units: of x and y, as the page formats them.
        stack: filled areas, one on top of the other.
        steps: a value holds until the next one, as counters do.
    """
    drawn: list[dict[str, object]] = [
        {
            "type": "line", "name": name, "data": [[_number(a), _known(b)] for a, b in zip(x, y, strict=True)],
            "showSymbol": False, "itemStyle": {"color": f"@c:{name.rpartition('.')[2]}"},
            **({"step": "end"} if steps else {}), **({"stack": "all", "areaStyle": {"opacity": 0.7}} if stack else {}),
        }
        for name, x, y in series
    ]  # fmt: skip
    return {"series": drawn, "tooltip": {"trigger": "axis"}, "legend": {"type": "scroll"}, **_plane(units, "value")}


def scatter(
    series: Sequence[tuple[str, Sequence[Option]]],
    fields: Sequence[tuple[str, str]],
    extra: Sequence[Option] = (),
    scales: tuple[str, str] = ("log", "log"),
) -> Option:
    """Points on logarithmic axes, or others.

    Args:
        series: (name, points); a point has `name`, `id`, `value` (x, y, what else is told of it) and `symbolSize`.
        fields: (token, unit) of each number in `value`, shown on hover.
        extra: whole series drawn beside the points.
        scales: of x and y, "log", "log2" or "value".
    """
    drawn = [*({"type": "scatter", "name": name, "data": list(points)} for name, points in series), *extra]
    told = [{"name": token, "formatter": f"@f:{unit}"} for token, unit in fields]
    option = _plane((fields[0][1], fields[1][1]), "log")
    for axis, scale in zip(option.values(), scales, strict=True):
        cast("Option", axis).update(_SCALES[scale])
    for axis, (token, _) in zip(option.values(), fields, strict=False):
        cast("Option", axis)["name"] = token
    return {"series": drawn, "tooltip": {"trigger": "item", "fields": told}, "legend": {"type": "scroll"}, **option}


_SCALES: dict[str, Option] = {"log": {}, "log2": {"logBase": 2}, "value": {"type": "value"}}


def _plane(units: tuple[str, str], kind: str) -> Option:
    x, y = ({"type": kind, "axisLabel": {"formatter": f"@f:{unit}"}} for unit in units)
    return {"xAxis": x, "yAxis": y}


def _known(value: Any) -> float | None:
    number = _number(value)
    return None if isinstance(number, float) and not np.isfinite(number) else number


def _option(chart: Any, unit: str, axis: bool, trigger: str) -> Option:
    """The chart's own option, without pyecharts' default look (the page has one)."""
    full: dict[str, Any] = json.loads(chart.dump_options())
    option: Option = {"series": [{k: v for k, v in s.items() if v is not None} for s in full["series"]]}
    option["tooltip"] = {"trigger": trigger, "valueFormatter": f"@f:{unit}"}
    option["legend"] = {"type": "scroll"}
    if axis:
        option["xAxis"] = {"type": "category", "data": full["xAxis"][0]["data"]}
        option["yAxis"] = {"type": "value", "axisLabel": {"formatter": f"@f:{unit}"}}
    return option


def _number(value: Any) -> float:
    return cast("float", value.item() if isinstance(value, np.generic) else value)
