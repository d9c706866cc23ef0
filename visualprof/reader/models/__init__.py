"""One file a model format, each with a `MODEL`; found by listing this folder."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from visualprof.errors import UnknownFormat
from visualprof.reader.graph import ModelGraph
from visualprof.reader.models import torch_archive
from visualprof.reader.source import Source


@dataclass(frozen=True)
class ModelFormat:
    """A model format: like `registry.Format`, but it reads a graph."""

    name: str
    priority: int
    sniff: Callable[[bytes], bool]
    read: Callable[[Source], ModelGraph]


@cache
def all_models() -> tuple[ModelFormat, ...]:
    """Every model format, the most specific first."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    return tuple(sorted((m.MODEL for m in modules if hasattr(m, "MODEL")), key=lambda f: (f.priority, f.name)))


def recognise_model(source: Source) -> ModelFormat | None:
    """The model format of a file by its content, None when it is none."""
    head = source.head()
    return next((each for each in all_models() if each.sniff(head)), None)


def read_model(path: str | Path) -> ModelGraph:
    """A model file as a graph, whatever its name; nothing in it is executed.

    Raises: UnknownFormat, FormatError, SourceError.
    """
    source = Source(path)
    chosen = recognise_model(source)
    if chosen is None:
        told = torch_archive.refusal(source.name, source.head())
        if told:
            raise told
        raise UnknownFormat(
            f"{source.name}: no model format recognises its content",
            "visualprof reads ONNX, MegEngine .mge (version 2), MegEngine static profiles, torch.export .pt2 "
            "and add_graph files",
        )
    return chosen.read(source)
