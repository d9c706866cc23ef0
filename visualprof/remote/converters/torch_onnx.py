"""Convert TorchScript or an exported program to ONNX with PyTorch's exporters."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import onnx, torch_export, torchscript
from visualprof.remote.protocol import DTYPES, TaskFailure

EXAMPLE = "inputs=x=float32[batch,3,224,224];mask=int64[batch,64]"
SAMPLE = 2  # size of open dimensions during recording: 1 would become a constant
_INPUT = re.compile(r"\s*([\w.]+)\s*=\s*(\w+)\s*\[([^\]]*)\]\s*")


def convert_torchscript(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Use the exporter for TorchScript.

    Raises:
        TaskFailure: `inputs` does not describe the inputs of the model.
    """
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


def convert_program(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Use torch.onnx. Open dimensions of the program stay open."""
    torch: Any = importlib.import_module("torch")
    onnx.write(torch.onnx.export(torch_export.read(model), dynamo=True, verbose=False).model_proto, target)


def _inputs(option: str) -> list[tuple[str, str, list[str]]]:
    inputs: list[tuple[str, str, list[str]]] = []
    for text in filter(str.strip, option.split(";")):
        match = _INPUT.fullmatch(text)
        if not match or match[2] not in DTYPES:
            raise TaskFailure(
                "input_error",
                msg("converters.inputs_no_input", f"inputs: {text!r} is not an input"),
                f"--option '{EXAMPLE}'",
            )
        inputs.append((match[1], match[2], [d.strip() for d in match[3].split(",") if d.strip()]))
    if not inputs:
        raise TaskFailure(
            "input_error",
            msg("converters.torchscript_not_say_what", "TorchScript does not declare its inputs"),
            f"--option '{EXAMPLE}'",
        )
    return inputs


CONVERTERS = (
    Converter(
        name="torchscript_onnx",
        title=msg("converters.torchscript_onnx", "TorchScript as ONNX"),
        takes="torchscript",
        makes="onnx",
        needs={"torch": "torch", "onnx": "onnx"},
        convert=convert_torchscript,
        options={"inputs": ()},
    ),
    Converter(
        name="torch_export_onnx",
        title=msg("converters.torch_export_onnx", "torch.export as ONNX"),
        takes="torch_export",
        makes="onnx",
        needs={"torch": "torch", "onnxscript": "onnxscript", "onnx": "onnx"},
        convert=convert_program,
    ),
)
