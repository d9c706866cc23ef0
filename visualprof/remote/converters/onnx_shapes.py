"""Fix the open dimensions of an ONNX model, so that a runtime knows every shape in advance."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx
from visualprof.remote.protocol import TaskFailure


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Set the sizes of the dimensions. A single open dimension defaults to 1.

    Raises:
        TaskFailure: A dimension has no size, or there is no such dimension.
    """
    tools: Any = importlib.import_module("onnxruntime.tools.onnx_model_utils")
    graph, sizes = onnx.read(model), _sizes(options["sizes"])
    open_ones = _open(graph)
    if not sizes and len(open_ones) == 1:
        sizes = {open_ones[0]: 1}
    hint = msg("converters.option_sizes", f"--option sizes={','.join(f'{name}=SIZE' for name in open_ones)}")
    for name in open_ones:
        if name not in sizes:
            raise TaskFailure(
                "input_error",
                msg("converters.nothing_gives_dimension_size", f"the dimension '{name}' has no size"),
                hint,
            )
    for name, size in sizes.items():
        if name not in open_ones:
            raise TaskFailure(
                "input_error",
                msg("converters.model_no_open_dimension", f"the model has no open dimension '{name}'"),
                hint,
            )
        tools.make_dim_param_fixed(graph.graph, name, size)
    tools.fix_output_shapes(graph)
    onnx.write(graph, target)


def unsuitable_reason(path: Path) -> str:
    """Return a reason for models without named open dimensions."""
    return (
        ""
        if _open(onnx.read(path, weights=False))
        else msg("converters.none_inputs_open_dimension", "none of its inputs has an open dimension with a name")
    )


def _open(graph: Any) -> list[str]:
    dims = (d for i in graph.graph.input for d in i.type.tensor_type.shape.dim)
    return list(dict.fromkeys(d.dim_param for d in dims if d.dim_param))


def _sizes(text: str) -> dict[str, int]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if odd := [f"{name}={size}" for name, _, size in pairs if not (size.isdecimal() and int(size))]:
        raise TaskFailure(
            "input_error",
            msg("converters.sizes_gives_no_dimension", f"sizes: {odd[0]!r} is not NAME=SIZE"),
            "sizes=batch=1,seq=64",
        )
    return {name.strip(): int(size) for name, _, size in pairs}


CONVERTER = Converter(
    name="onnx_shapes",
    title=msg("converters.onnx_fixed_shapes", "ONNX with fixed shapes"),
    takes="onnx",
    makes="onnx",
    needs=onnx.NEEDS,
    convert=convert,
    unsuitable_reason=unsuitable_reason,
    options={"sizes": ()},
)
