"""SavedModels: functions that its converters share."""

from __future__ import annotations

import importlib
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.backends import backend
from visualprof.remote.backends.tensorflow import SAVED_MODEL_START, saved_model_folder, signature_name
from visualprof.remote.converters import formats
from visualprof.remote.converters.formats import Content
from visualprof.remote.protocol import Spec


def needs_saved_model(path: Path) -> str:
    """Return an `unsuitable_reason`: converters accept only SavedModels."""
    return (
        ""
        if path.read_bytes()[:1] == SAVED_MODEL_START
        else msg("converters.frozen_graph_not_savedmodel", "it is a frozen graph, not a SavedModel")
    )


def signature(path: Path) -> tuple[str, dict[str, list[int | None]]]:
    """Return the signature that is run, and the dimensions of its inputs."""
    tf: Any = importlib.import_module("tensorflow")
    with saved_model_folder(path) as folder:
        loaded = tf.saved_model.load(folder)
    name = signature_name(loaded)
    inputs = loaded.signatures[name].structured_input_signature[1]
    return name, {key: list(spec.shape) for key, spec in inputs.items()}


def check(path: Path) -> None:
    """Load a model."""
    backend("tensorflow").load(path, Spec("check", "tensorflow"), dict.fromkeys(signature(path)[1]))


def content(path: Path) -> Content:
    """Return operators of the graph and its functions with their attributes, and the saved variables."""
    pb2: Any = importlib.import_module("tensorflow.core.protobuf.saved_model_pb2")
    graph = pb2.SavedModel.FromString(path.read_bytes()).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    parts: list[object] = [(n.op, sorted((k, v.SerializeToString(True)) for k, v in n.attr.items())) for n in nodes]
    parts += [sha256(file.read_bytes()).hexdigest() for file in sorted(path.parent.glob("variables/*"))]
    return formats.content(parts, Counter(node.op for node in nodes))
