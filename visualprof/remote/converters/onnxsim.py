"""Simplify an ONNX model with onnxsim."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx
from visualprof.remote.protocol import TaskFailure


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Fold constants and remove operators without effect.

    Raises:
        TaskFailure: The check of onnxsim fails.
    """
    tool: Any = importlib.import_module("onnxsim")
    simple, same = tool.simplify(onnx.read(model))
    if not same:
        raise TaskFailure(
            "model_error",
            msg(
                "converters.onnxsim_says_itself_simplified",
                "onnxsim reports that the simplified model computes other results",
            ),
        )
    onnx.write(simple, target)


CONVERTER = Converter(
    name="onnxsim",
    title=msg("converters.onnx_simplified_onnxsim", "ONNX simplified by onnxsim"),
    takes="onnx",
    makes="onnx",
    needs={"onnxsim": "onnxsim", **onnx.NEEDS},
    convert=convert,
)
