"""Charts of views as pyecharts charts that show themselves without a network.

pyecharts loads ECharts from a CDN, so that its charts are empty cells offline and in JupyterLab. These charts bring
ECharts from this package in an isolated frame.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from visualprof.api.extras import require
from visualprof.errors import MissingData

FRONTEND = Path(__file__).parents[1] / "frontend"
# In a wheel, and in a checkout whose web UI is not built.
ECHARTS_FILES = tuple(FRONTEND / folder / "echarts.min.js" for folder in ("dist", "node_modules/echarts/dist"))

HEIGHT_PX = 400
_SCALED = "const u=[%s].find(p=>Math.abs(x)>=p[1])||['%s',1];return +(x/u[1]).toPrecision(4)+' '+u[0];"
_FORMATTERS = {
    "ns": _SCALED % ("['s',1e9],['ms',1e6],['µs',1e3]", "ns"),
    "bytes": _SCALED % ("['GiB',2**30],['MiB',2**20],['KiB',1024]", "B"),
    "ratio": "return (x*100).toFixed(1)+' %';",
    "count": "return x.toLocaleString('en');",
}
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


@cache
def echarts_script() -> str:
    """Return the source of ECharts.

    Raises:
        MissingData: This installation has no web UI.
    """
    for path in ECHARTS_FILES:
        if path.is_file():
            return path.read_text(encoding="utf-8").replace("</script", "<\\/script")
    raise MissingData("this installation has no charts", "pip install visualprof")


def make_chart(option: Mapping[str, Any], title: str) -> Any:
    """Return an ECharts option of a view as a pyecharts chart, which `set_global_opts` can change."""
    return _chart_class()(resolve_tokens(option), title)


@cache
def _chart_class() -> Any:
    base: Any = require("pyecharts.charts.chart").Chart

    class ViewChart(base):
        """A chart of a view. It shows itself in notebooks and renders to HTML without a network."""

        def __init__(self, options: dict[str, Any], title: str) -> None:
            super().__init__()
            self.title = title
            lists = {name: _as_list(options[name]) for name in ("legend", "xAxis", "yAxis") if name in options}
            self.options.update({**options, **lists})

        def set_global_opts(self, *arguments: Any, **options: Any) -> Any:
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
            frame = (
                f'<iframe sandbox="allow-scripts" width="100%" height="{HEIGHT_PX}" style="border:0" srcdoc="{source}">'
            )
            return {"text/html": f"{frame}</iframe>", "text/plain": f"<chart {self.title}>"}

    return ViewChart


def _as_list(value: Any) -> list[Any]:
    """Return the form in which pyecharts keeps axes and legends."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, (list, tuple)) else [value]


def resolve_tokens(value: Any) -> Any:
    """Return an option in which tokens are replaced: texts in English, formatters as JavaScript, default colors."""
    if isinstance(value, str):
        return _token(value)
    if isinstance(value, dict):
        members = {key: resolve_tokens(member) for key, member in cast("dict[str, Any]", value).items()}
        return {key: member for key, member in members.items() if member is not None}
    if isinstance(value, (list, tuple)):
        return [resolve_tokens(item) for item in cast("Sequence[Any]", value)]
    return value


def _token(text: str) -> Any:
    if text.startswith("@f:"):
        js = require("pyecharts.commons.utils").JsCode
        body = _FORMATTERS.get(text[3:], _FORMATTERS["count"])
        read = "const y=(v&&typeof v==='object'&&'value' in v)?v.value:v;const x=+(Array.isArray(y)?y[y.length-1]:y);"
        return js(f"function(v){{{read}{body}}}")
    if text.startswith("@c:"):
        return None
    return _text(text[3:]) if text.startswith("@t:") else text


def _text(key: str) -> str:
    """Return the English text of a key such as chart.rest; its last part if the text is missing."""
    node: Any = _texts()
    for part in key.partition("|")[0].split("."):
        node = cast("dict[str, Any]", node).get(part) if isinstance(node, dict) else None
    return node if isinstance(node, str) else key.rpartition(".")[2].replace("_", " ")


@cache
def _texts() -> dict[str, Any]:
    files = sorted((FRONTEND / "src" / "locales" / "en").glob("*.json"))
    return {section: words for file in files for section, words in json.loads(file.read_text("utf-8")).items()}
