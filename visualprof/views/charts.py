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
