"""TensorRT engines."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from visualprof.messages import msg
from visualprof.remote.converters import formats
from visualprof.remote.converters.formats import Content


def read(path: Path) -> Any:
    """Return an engine.

    Raises:
        ValueError: TensorRT cannot load it here.
    """
    trt: Any = importlib.import_module("tensorrt")
    engine = trt.Runtime(trt.Logger(trt.Logger.WARNING)).deserialize_cuda_engine(path.read_bytes())
    if engine is None:
        raise ValueError(msg("converters.tensorrt_not_load_engine", "this TensorRT cannot load the engine"))
    return engine


def check(path: Path) -> None:
    """Load an engine."""
    read(path)


def content(path: Path) -> Content:
    """Return the types of the layers, if the engine was built to report them, and the file's digest."""
    trt: Any = importlib.import_module("tensorrt")
    information = read(path).create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    layers: list[object] = json.loads(information).get("Layers", [])
    objects = [cast("dict[str, object]", layer) for layer in layers if isinstance(layer, dict)]
    kinds = Counter(str(layer["LayerType"]) for layer in objects if "LayerType" in layer)
    return formats.content([sha256(path.read_bytes()).hexdigest()], kinds)
