"""Store the graph as optimized by ONNX Runtime, so that a session does not optimize it at every start."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx

LEVELS = {"extended": "ORT_ENABLE_EXTENDED", "all": "ORT_ENABLE_ALL", "basic": "ORT_ENABLE_BASIC"}


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Let a session write its graph. The level `all` includes layouts specific to this machine's processor."""
    ort: Any = importlib.import_module("onnxruntime")
    level = getattr(ort.GraphOptimizationLevel, LEVELS[options["level"]])
    onnx.write_optimized(model, target, level)


CONVERTER = Converter(
    name="ort_level",
    title=msg("converters.graph_optimised_onnx_runtime_2", "Graph optimized by ONNX Runtime"),
    takes="onnx",
    makes="onnx",
    needs=onnx.NEEDS,
    convert=convert,
    options={"level": tuple(LEVELS)},
    runtimes=("onnxruntime",),
    settings={"optimization": "disable"},
)
