"""The graph as ONNX Runtime optimises it, saved: what every session does at its start is done once."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx

LEVELS = {"extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL", "basic": "ORT_ENABLE_BASIC"}


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """A session that writes its graph. The level `all` has layouts of this machine's processor in it."""
    ort: Any = importlib.import_module("onnxruntime")
    level = getattr(ort.GraphOptimizationLevel, LEVELS[options["level"]])
    onnx.write_optimized(model, target, level)


CONVERTER = Converter(
    name="ort_level",
    title=msg("converters.graph_optimised_onnx_runtime_2", "Graph optimised by ONNX Runtime"),
    takes="onnx",
    makes="onnx",
    needs=onnx.NEEDS,
    convert=convert,
    options={"level": tuple(LEVELS)},
    runtimes=("onnxruntime",),
    settings={"optimization": "disable"},
)
