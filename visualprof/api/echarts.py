"""The source of ECharts in this installation."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from visualprof.errors import MissingData

FRONTEND = Path(__file__).parents[1] / "frontend"
# In a wheel, and in a checkout whose web UI is not built.
ECHARTS_FILES = tuple(FRONTEND / folder / "echarts.min.js" for folder in ("dist", "node_modules/echarts/dist"))


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
