"""`add_graph`: write a model with its module hierarchy, in the format of docs/graph-format.md."""

from __future__ import annotations

import importlib
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visualprof.errors import VisualprofError

# Top package and name of the base class -> the file here that records its models.
FRAMEWORKS = {
    ("torch", "Module"): "torch_module",
    ("megengine", "Module"): "megengine_module",
    ("paddle", "Layer"): "paddle_layer",
}


class UnsupportedModel(VisualprofError, TypeError, status=400):
    """The framework of the model is not supported by `add_graph`."""


def add_graph(model: object, inputs: object, logdir: str | os.PathLike[str], name: str | None = None) -> Path:
    """Run a model once and write its graph into the log directory.

    The pass runs without gradients and in evaluation mode. Training flags and random state are restored afterwards.

    Args:
        model: A torch.nn.Module, a MegEngine Module or a Paddle Layer.
        inputs: A tensor, a tuple or list of positional arguments, or a dict of keyword arguments. Arguments may nest.
        logdir: Folder that visualprof watches; created if missing.
        name: Name of the model and of the file (default: the class of the model).

    Returns:
        The file, `<logdir>/<name>.graph.json`; an existing file is replaced.

    Raises:
        UnsupportedModel: The framework is not supported.
    """
    framework = _framework(model)
    title = name or type(model).__name__
    arguments, keywords = arguments_of(inputs)
    return _write(framework(model, arguments, keywords, title), Path(logdir), title)


def _framework(model: object) -> Callable[[Any, tuple[Any, ...], dict[str, Any], str], dict[str, Any]]:
    """Return the function that records models of this framework."""
    for base in type(model).__mro__:
        chosen = FRAMEWORKS.get((base.__module__.partition(".")[0], base.__name__))
        if chosen:
            return importlib.import_module(f"visualprof.capture.{chosen}").record
    raise UnsupportedModel(
        f"add_graph: cannot record a {type(model).__module__}.{type(model).__qualname__}",
        "give a torch.nn.Module, a megengine.module.Module or a paddle.nn.Layer; export other models to ONNX",
    )


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments."""
    if isinstance(inputs, dict):
        return (), {str(k): v for k, v in inputs.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return (tuple(inputs), {}) if type(inputs) in (tuple, list) else ((inputs,), {})


def _write(document: dict[str, Any], folder: Path, title: str) -> Path:
    """Write a temporary file and rename it, so that a watcher never sees a partial file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{re.sub(r'[^0-9A-Za-z._-]+', '_', title).strip('.') or 'model'}.graph.json"
    handle, partial = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            json.dump(document, file, separators=(",", ":"))
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(partial, 0o666 & ~umask)  # mkstemp makes the file private
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    return path
