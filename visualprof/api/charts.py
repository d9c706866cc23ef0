"""Charts of views as pyecharts charts that show themselves without a network.

pyecharts loads ECharts from a CDN, so that its charts are empty cells offline and in JupyterLab. These charts bring
ECharts from this package in an isolated frame.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from visualprof.api.echarts import FRONTEND
from visualprof.api.extras import require

if TYPE_CHECKING:
    from visualprof.api.view_chart import ViewChart

_SCALED = "const u=[%s].find(p=>Math.abs(x)>=p[1])||['%s',1];return +(x/u[1]).toPrecision(4)+' '+u[0];"
_FORMATTERS = {
    "ns": _SCALED % ("['s',1e9],['ms',1e6],['µs',1e3]", "ns"),
    "bytes": _SCALED % ("['GiB',2**30],['MiB',2**20],['KiB',1024]", "B"),
    "ratio": "return (x*100).toFixed(1)+' %';",
    "count": "return x.toLocaleString('en');",
}


def make_chart(option: Mapping[str, Any], title: str) -> ViewChart:
    """Return an ECharts option of a view as a pyecharts chart, which `set_global_opts` can change."""
    return chart_class()(resolve_tokens(option), title)


def chart_class() -> type[ViewChart]:
    """Return the class of charts.

    Raises:
        MissingData: pyecharts is not installed.
    """
    require("pyecharts")
    from visualprof.api.view_chart import ViewChart

    return ViewChart


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
    """Return the English text of a key such as chart.rest; its last part if the text is missing.

    Parts of steps and stages have the names of categories, and "|device" adds the side, as in the web UI.
    """
    name, _, side = key.partition("|")
    if side:
        return _lookup("chart.of_side").replace("{name}", _text(name)).replace("{side}", _lookup(f"category.{side}"))
    if name.startswith("derived."):
        return _lookup("overview.derived").replace("{name}", _lookup(f"category.{name.partition('.')[2]}"))
    area, _, rest = name.partition(".")
    return _lookup(f"category.{rest}" if area in ("part", "stage") else name)


def _lookup(key: str) -> str:
    node: Any = _texts()
    for part in key.split("."):
        node = cast("dict[str, Any]", node).get(part) if isinstance(node, dict) else None
    return node if isinstance(node, str) else key.rpartition(".")[2].replace("_", " ")


@cache
def _texts() -> dict[str, Any]:
    files = sorted((FRONTEND / "src" / "locales" / "en").glob("*.json"))
    return {section: words for file in files for section, words in json.loads(file.read_text("utf-8")).items()}
