"""LiteRT models: how TensorFlow converts them, and their content."""

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
    """Convert a SavedModel.

    Args:
        model: The SavedModel.
        target: The file to write.
        prepare: Gets TensorFlow and its converter, and sets the options.
    """
    tf: Any = importlib.import_module("tensorflow")
    name, _ = tensorflow.signature(model)
    with saved_model_folder(model) as folder:
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[name])
        prepare(tf, converter)
        target.write_bytes(converter.convert())


def _interpreter(path: Path) -> Any:
    """Return LiteRT's interpreter if it is installed, otherwise that of TensorFlow."""
    if importlib.util.find_spec("ai_edge_litert"):
        module: Any = importlib.import_module("ai_edge_litert.interpreter")
        resolver = module.OpResolverType
    else:
        module = importlib.import_module("tensorflow").lite
        resolver = module.experimental.OpResolverType
    plain = resolver.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # a delegate would hide the operators that it runs
    return module.Interpreter(model_path=str(path), experimental_op_resolver_type=plain)


def check(path: Path) -> None:
    """Load a model and plan its memory."""
    _interpreter(path).allocate_tensors()


def content(path: Path) -> Content:
    """Return operators by name, and the file's digest."""
    interpreter = _interpreter(path)
    operators = Counter(str(row["op_name"]) for row in interpreter._get_ops_details())  # noqa: SLF001
    return formats.content([sha256(path.read_bytes()).hexdigest()], operators)
