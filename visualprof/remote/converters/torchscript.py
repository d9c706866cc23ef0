"""Rewrite TorchScript with PyTorch: frozen, with another layout of weights, or in 16 bits."""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import torchscript
from visualprof.remote.protocol import TaskFailure

TYPES = {"bf16": "bfloat16", "f16": "float16"}
# TorchScript compiles from a file, and an inner module keeps its own code.
CAST = """
import torch
from torch import Tensor

class Cast(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def cast(self, x: Tensor) -> Tensor:
        return x.to(torch.{dtype}) if x.is_floating_point() else x

    def back(self, x: Tensor) -> Tensor:
        return x.to(torch.float32) if x.is_floating_point() else x

    def forward(self, {parameters}):
        outputs = self.inner({arguments})
        return {results}
"""


def freeze(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Use torch.jit.freeze."""
    torch: Any = importlib.import_module("torch")
    torch.jit.freeze(torchscript.read(model)).save(str(target))


def use_channels_last(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Use channels last. Convolutions then pass this layout on."""
    torch: Any = importlib.import_module("torch")
    torchscript.read(model).to(memory_format=torch.channels_last).save(str(target))


def cast(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Cast the weights, inputs and outputs.

    Raises:
        TaskFailure: Inputs or outputs are not only tensors.
    """
    torch: Any = importlib.import_module("torch")
    module = torchscript.read(model)
    dtype, schema = TYPES[options["precision"]], module.forward.schema
    names = [f"x{i}" for i, argument in enumerate(schema.arguments[1:]) if str(argument.type) == "Tensor"]
    returned = schema.returns[0].type
    count = len(returned.elements()) if returned.kind() == "TupleType" else 0
    plain = all(str(element) == "Tensor" for element in (returned.elements() if count else [returned]))
    if len(names) < len(schema.arguments) - 1 or not plain:
        raise TaskFailure(
            "model_error",
            msg("converters.not_only_tensors_go", f"inputs and outputs must be tensors: {schema}"),
            msg("converters.save_wrapper", "save a wrapper module with tensors only"),
        )
    source = CAST.format(
        dtype=dtype,
        parameters=", ".join(f"{name}: Tensor" for name in names),
        arguments=", ".join(f"self.cast({name})" for name in names),
        results=f"({', '.join(f'self.back(outputs[{i}])' for i in range(count))},)" if count else "self.back(outputs)",
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cast.py")
        path.write_text(source, "utf-8")
        spec: Any = importlib.util.spec_from_file_location("cast", path)
        code: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(code)
        wrapped = code.Cast(module.to(getattr(torch, dtype)))
        torch.jit.script(wrapped.eval()).save(str(target))


_from_torchscript = partial(
    Converter,
    takes="torchscript",
    makes="torchscript",
    needs={"torch": "torch"},
    unsuitable_reason=torchscript.needs_parameters,
)
CONVERTERS = (
    _from_torchscript(
        name="torchscript_freeze",
        title=msg("converters.frozen_torchscript", "Frozen TorchScript"),
        convert=freeze,
    ),
    _from_torchscript(
        name="torchscript_channels_last",
        title=msg("converters.torchscript_channels_last", "TorchScript, channels last"),
        convert=use_channels_last,
    ),
    _from_torchscript(
        name="torchscript_bf16",
        title=msg("converters.torchscript_bf16", "TorchScript in bf16"),
        convert=cast,
        options={"precision": tuple(TYPES)},
    ),
)
