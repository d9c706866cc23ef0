"""The class of charts. Importing it needs pyecharts."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from pyecharts.charts.chart import Chart  # pyright: ignore[reportMissingTypeStubs]

from visualprof.api.echarts import echarts_script

HEIGHT_PX = 400
_LEGEND_TEXT = {"width": 240, "overflow": "truncate"}  # names of kernels fill several lines
_PAGE = """<!DOCTYPE html>
<meta charset="utf-8"><title>{title}</title>
<style>html,body,#chart{{margin:0;height:100%;width:100%}}</style>
<div id="chart"></div>
<script>{echarts}</script>
<script>
const chart = echarts.init(document.getElementById("chart"));
chart.setOption({options});
addEventListener("resize", () => chart.resize());
</script>
"""


class ViewChart(Chart):
    """A pyecharts chart of a view. It shows itself in notebooks and renders to HTML without a network.

    Args:
        options: ECharts options. `options` of the chart can be changed freely.
        title: Title of the page that `render` writes.
    """

    def __init__(self, options: dict[str, Any], title: str) -> None:
        super().__init__()
        self.title = title
        lists = {name: _as_list(options[name]) for name in ("legend", "xAxis", "yAxis") if name in options}
        lists["legend"] = [{"textStyle": _LEGEND_TEXT, **legend} for legend in lists.get("legend", [])]
        self.options: dict[str, Any] = {**self.options, **options, **lists}

    def set_global_opts(self, *arguments: Any, **options: Any) -> ViewChart:
        """Change the chart as in pyecharts. The formats of the tooltip stay unless `tooltip_opts` is given."""
        tooltip = self.options.get("tooltip")
        super().set_global_opts(*arguments, **options)
        if tooltip and options.get("tooltip_opts") is None:
            self.options["tooltip"] = tooltip
        return self

    def render(self, path: str | os.PathLike[str] = "chart.html", *_: Any, **__: Any) -> str:
        """Write the chart as an HTML file that needs no network, and return its path."""
        Path(path).write_text(self.page(), encoding="utf-8")
        return str(path)

    def page(self) -> str:
        """Return the chart as an HTML page that needs no network."""
        return _PAGE.format(
            title=html.escape(self.title),
            echarts=echarts_script(),
            options=self.dump_options().replace("</", "<\\/"),
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        source = html.escape(self.page())
        frame = f'<iframe sandbox="allow-scripts" width="100%" height="{HEIGHT_PX}" style="border:0" srcdoc="{source}">'
        return {"text/html": f"{frame}</iframe>", "text/plain": f"<chart {self.title}>"}


def _as_list(value: Any) -> list[Any]:
    """Return the form in which pyecharts keeps axes and legends."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, (list, tuple)) else [value]
