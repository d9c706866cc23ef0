"""LiteRT's models: how TensorFlow makes them, and what is in them."""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from visualprof.remote.backends.tensorflow import saved_model_folder
from visualprof.remote.converters import formats
from visualprof.remote.converters.formats import Content, tensorflow

NEEDS = {"tensorflow": "tensorflow-cpu"}


def write(model: Path, target: Path, prepare: Callable[[Any, Any], None]) -> None:
    """Convert a SavedModel. prepare: gets TensorFlow and its converter, and sets what is wanted."""
    tf: Any = importlib.import_module("tensorflow")
    name, _ = tensorflow.signature(model)
    with saved_model_folder(model) as folder:
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[name])
        prepare(tf, converter)
        target.write_bytes(converter.convert())


def _interpreter(path: Path) -> Any:
    """LiteRT's own where this interpreter has it, else the one in TensorFlow."""
    if importlib.util.find_spec("ai_edge_litert"):
        module: Any = importlib.import_module("ai_edge_litert.interpreter")
        resolver = module.OpResolverType
    else:
        module = importlib.import_module("tensorflow").lite
        resolver = module.experimental.OpResolverType
    plain = resolver.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # which would hide the operators that it takes
    return module.Interpreter(model_path=str(path), experimental_op_resolver_type=plain)


def check(path: Path) -> None:
    """Load it and plans its memory."""
    _interpreter(path).allocate_tensors()


def content(path: Path) -> Content:
    """Operators by their names, and the file as it is."""
    interpreter = _interpreter(path)
    operators = Counter(str(row["op_name"]) for row in interpreter._get_ops_details())  # noqa: SLF001
    return formats.content([sha256(path.read_bytes()).hexdigest()], operators)
