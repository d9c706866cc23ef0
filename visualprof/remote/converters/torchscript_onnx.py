"""TorchScript as ONNX."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import torchscript
from visualprof.remote.protocol import DTYPES, TaskFailure

EXAMPLE = "inputs=x=float32[batch,3,224,224];mask=int64[batch,64]"
SAMPLE = 2  # size of an open dimension while it is recorded: 1 would become a constant
_INPUT = re.compile(r"\s*([\w.]+)\s*=\s*(\w+)\s*\[([^\]]*)\]\s*")


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """By the exporter that reads TorchScript. Raises: TaskFailure: `inputs` does not say what the model takes."""
    torch: Any = importlib.import_module("torch")
    module, inputs = torchscript.read(model), _inputs(options["inputs"])
    sizes = [[int(d) if d.isdecimal() else SAMPLE for d in dims] for _, _, dims in inputs]
    args = tuple(
        torch.zeros(size, dtype=getattr(torch, dtype)) for size, (_, dtype, _) in zip(sizes, inputs, strict=True)
    )
    with torch.inference_mode():
        torch.onnx.export(
            module,
            args,
            str(target),
            dynamo=False,
            input_names=[name for name, _, _ in inputs],
            dynamic_axes={name: {i: d for i, d in enumerate(dims) if not d.isdecimal()} for name, _, dims in inputs},
        )


def _inputs(text: str) -> list[tuple[str, str, list[str]]]:
    found: list[tuple[str, str, list[str]]] = []
    for one in filter(str.strip, text.split(";")):
        match = _INPUT.fullmatch(one)
        if not match or match[2] not in DTYPES:
            raise TaskFailure(
                "input_error",
                msg("converters.inputs_no_input", f"inputs: {one!r} is no input"),
                f"--option '{EXAMPLE}'",
            )
        found.append((match[1], match[2], [d.strip() for d in match[3].split(",") if d.strip()]))
    if not found:
        raise TaskFailure(
            "input_error",
            msg("converters.torchscript_not_say_what", "TorchScript does not say what it takes"),
            f"--option '{EXAMPLE}'",
        )
    return found


CONVERTER = Converter(
    name="torchscript_onnx",
    title=msg("converters.torchscript_onnx", "TorchScript as ONNX"),
    takes="torchscript",
    makes="onnx",
    needs={"torch": "torch", "onnx": "onnx"},
    convert=convert,
    options={"inputs": ()},
)
