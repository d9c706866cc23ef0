"""ONNX models: functions that its converters share."""

from __future__ import annotations

import importlib
import importlib.util
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import formats
from visualprof.remote.converters.formats import Content

MAX_FILE_BYTES = (2 << 30) - (16 << 20)  # protobuf files are limited to 2 GiB
GRAPH, GRAPHS = 5, 10  # attribute types
NEEDS = {"onnxruntime": "onnxruntime", "onnx": "onnx"}


def read(path: Path, weights: bool = True) -> Any:
    """Return a model; `weights`: also load weights in other files."""
    onnx: Any = importlib.import_module("onnx")
    return onnx.load(str(path), load_external_data=weights)


def write(model: Any, target: Path) -> None:
    """Write a model. Its weights go to a second file if one file would be too large."""
    onnx: Any = importlib.import_module("onnx")
    options = {"save_as_external_data": True, "location": f"{target.name}.data"} if exceeds_one_file(model) else {}
    onnx.save(model, str(target), **options)


def exceeds_one_file(model: Any) -> bool:
    """Whether a model is too large for one file."""
    return model.ByteSize() > MAX_FILE_BYTES


@contextmanager
def writable_copy(path: Path) -> Generator[Path]:
    """Yield a copy in a writable folder, because quantization writes files next to its input.

    The copy has no shapes of inner values: those of some exporters contradict the inferred shapes.
    """
    model = read(path)
    del model.graph.value_info[:]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "model.onnx")
        write(model, copy)
        yield copy


def write_optimized(path: Path, target: Path, level: Any, **settings: Any) -> None:
    """Write the graph after ONNX Runtime's optimization.

    Args:
        path: The model.
        target: The file to write.
        level: Level of the optimization.
        settings: Attributes of the session options.
    """
    weights = {"session.optimized_model_external_initializers_file_name": f"{target.name}.data"}
    config = weights if exceeds_one_file(read(path)) else {}
    session(path, config, graph_optimization_level=level, optimized_model_filepath=str(target), **settings)


def check(path: Path) -> None:
    """Load a model in ONNX Runtime if it is installed, otherwise check it against the rules of the format."""
    if importlib.util.find_spec("onnxruntime"):
        session(path)
    else:
        onnx: Any = importlib.import_module("onnx")
        onnx.checker.check_model(str(path))


def session(path: Path, config: Mapping[str, str] = MappingProxyType({}), **settings: Any) -> Any:
    """Return an ONNX Runtime session on the CPU.

    Args:
        path: The model.
        config: Configuration entries.
        settings: Attributes of the session options.
    """
    ort: Any = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = min(4, len(os.sched_getaffinity(0)))
    options.log_severity_level = 3
    disabled = settings.pop("disabled_optimizers", None)
    for name, value in config.items():
        options.add_session_config_entry(name, value)
    for name, value in settings.items():
        setattr(options, name, value)
    return ort.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled or None
    )


def shapes(path: Path) -> dict[str, list[int | str | None]]:
    """Return the dimensions of the inputs. Open dimensions are not numbers."""
    graph = read(path, weights=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    return {i.name: _dims(i.type.tensor_type) for i in graph.input if i.name not in weights}


def operators(path: Path) -> Counter[str]:
    """Return the count of each operator; operators of other domains include the domain."""
    model = read(path, weights=False)
    parts = (model.graph, *model.functions)
    return Counter(_operator(node) for part in parts for node in nodes(part))


def needs_operator(*kinds: str, weighted: bool = False) -> Callable[[Path], str]:
    """Return an `unsuitable_reason` for models without any of these operators.

    Args:
        kinds: Operator types.
        weighted: Whether the second input of the operator must be a weight.
    """

    def unsuitable_reason(path: Path) -> str:
        graph = read(path, weights=False).graph
        weights = {tensor.name for tensor in graph.initializer}
        matching = (node for node in nodes(graph) if node.op_type in kinds)
        if any(not weighted or (len(node.input) > 1 and node.input[1] in weights) for node in matching):
            return ""
        alternatives = " or ".join(kinds)
        return (
            msg("converters.no_weight", f"it has no {alternatives} with a weight")
            if weighted
            else msg("converters.no", f"it has no {alternatives}")
        )

    return unsuitable_reason


def nodes(part: Any) -> Iterator[Any]:
    """Yield the nodes of a graph or function and of all subgraphs."""
    for node in part.node:
        yield node
        for attribute in node.attribute:
            for graph in [*attribute.graphs, *([attribute.g] if attribute.type == GRAPH else [])]:
                yield from nodes(graph)


def content(path: Path) -> Content:
    """Return operators with attributes, weights, types of inputs and outputs, and operator versions."""
    model = read(path)
    parts: list[object] = [("opset", opset.domain, opset.version) for opset in model.opset_import]
    for part in (model.graph, *model.functions):
        parts += _parts(part)
    return formats.content(parts, operators(path))


def _parts(part: Any) -> Iterator[object]:
    for tensor in getattr(part, "initializer", ()):
        yield _tensor(tensor)
    for value in (*part.input, *part.output):
        if hasattr(value, "type"):  # inputs of functions are plain names
            yield ("value", value.name, value.type.tensor_type.elem_type, _dims(value.type.tensor_type))
    for node in part.node:
        graphs = [a for a in node.attribute if a.type in (GRAPH, GRAPHS)]
        yield (_operator(node), len(node.input), sorted(_attribute(a) for a in node.attribute if a not in graphs))
        for attribute in graphs:
            for graph in (attribute.g, *attribute.graphs):
                yield from _parts(graph)


def _attribute(attribute: Any) -> str:
    if attribute.HasField("t"):
        return f"{attribute.name}={_tensor(attribute.t)}"
    plain = type(attribute)()
    plain.CopyFrom(attribute)
    plain.doc_string = ""
    return f"{attribute.name}={sha256(plain.SerializeToString(deterministic=True)).hexdigest()}"


def _tensor(tensor: Any) -> tuple[object, ...]:
    """Return a tensor by its values, regardless of how the message stores them."""
    helper: Any = importlib.import_module("onnx.numpy_helper")
    try:
        data = helper.to_array(tensor).tobytes()
    except (TypeError, ValueError):  # types that some numpy versions do not have
        data = tensor.SerializeToString(deterministic=True)
    return ("tensor", tensor.data_type, tuple(tensor.dims), sha256(data).hexdigest())


def _operator(node: Any) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def _dims(tensor: Any) -> list[int | str | None]:
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
