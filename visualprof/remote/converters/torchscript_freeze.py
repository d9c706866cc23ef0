"""Freeze TorchScript: weights become constants, norms are folded into convolutions, constants are computed once."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import torchscript


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Use torch.jit.freeze."""
    torch: Any = importlib.import_module("torch")
    torch.jit.freeze(torchscript.read(model)).save(str(target))


CONVERTER = Converter(
    name="torchscript_freeze",
    title=msg("converters.frozen_torchscript", "Frozen TorchScript"),
    takes="torchscript",
    makes="torchscript",
    needs={"torch": "torch"},
    convert=convert,
    unsuitable_reason=torchscript.needs_parameters,
)
