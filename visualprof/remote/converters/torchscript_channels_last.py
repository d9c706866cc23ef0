"""Store the convolution weights of TorchScript in the layout that processors prefer."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import torchscript


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Use channels last. Convolutions then pass this layout on."""
    torch: Any = importlib.import_module("torch")
    torchscript.read(model).to(memory_format=torch.channels_last).save(str(target))


CONVERTER = Converter(
    name="torchscript_channels_last",
    title=msg("converters.torchscript_channels_last", "TorchScript, channels last"),
    takes="torchscript",
    makes="torchscript",
    needs={"torch": "torch"},
    convert=convert,
    unsuitable_reason=torchscript.needs_parameters,
)
