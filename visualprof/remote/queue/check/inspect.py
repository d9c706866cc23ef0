"""Inspection of uploaded files: a model with its inputs, or an array. Nothing is executed or unpickled."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from visualprof.errors import FormatError, VisualprofError
from visualprof.messages import msg
from visualprof.reader import child
from visualprof.reader.graph import ModelGraph, Node
from visualprof.reader.models import recognize_model, rejection_reason
from visualprof.reader.source import GZIP_MAGIC, Progress, Source
from visualprof.remote.backends import FileFormat, all_backends, all_formats
from visualprof.remote.protocol import DTYPES, INPUT_NAME_MAX, TaskFailure
from visualprof.remote.queue.check import npy, zips
from visualprof.remote.queue.check.external import EXTERNAL, External

MAX_INPUTS = 256
MAX_RANK = 32
NAME_BYTES = 150
FIRST_SIZE = 1  # of a named first dimension: the batch
OTHER_SIZE = 64  # of any other named dimension: a length or an edge, for which 1 is too small


@dataclass(frozen=True)
class Tensor:
    """An input or output as the file declares it.

    Attributes:
        name: Name of the tensor.
        dtype: Type of its values; "" is unknown.
        dims: Dimensions; None is unknown, for a dimension or for all.
    """

    name: str
    dtype: str
    dims: list[int | str | None] | None


@dataclass(frozen=True, kw_only=True)
class InspectedModel:
    """A model that a backend can load.

    Attributes:
        format: Format of the model.
        inputs: Inputs.
        outputs: Outputs.
        dims: Initial sizes of the inputs' named dimensions.
        backends: Names of the backends that load the model.
        warnings: Warnings for users.
        fixed_inputs: Whether the file fixes names, types and dimensions of the inputs.
        external: Weight files.
        parameters: Number of elements of all constants; None is unknown.
        operators: Number of operators per type; None if no reader shows them.
    """

    format: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    dims: dict[str, int]
    backends: list[str]
    warnings: list[str] = field(default_factory=list[str])
    fixed_inputs: bool = False
    external: list[External] = field(default_factory=list[External])
    parameters: int | None = None
    operators: dict[str, int] | None = None


@dataclass(frozen=True)
class InspectedArray:
    """An array that can be an input."""

    dtype: str
    shape: list[int]


@dataclass(frozen=True)
class InspectedPart:
    """A weight file of a model."""

    size_bytes: int


Inspected = InspectedModel | InspectedArray | InspectedPart
KINDS: dict[type, str] = {InspectedModel: "model", InspectedArray: "array", InspectedPart: "part"}


def inspect_file(path: Path, name: str) -> InspectedModel | InspectedArray:
    """Inspect a file by its content, in a separate process with limits of time and memory.

    Args:
        path: Path of the file.
        name: Name of the file in error messages.

    Raises:
        FormatError, SourceError: The file is neither a model nor an array.
    """
    return child.run_in_child(partial(_inspected, name=name), path, name)


def inspect_array(path: Path, name: str) -> InspectedArray:
    """Inspect the header of an .npy file.

    Raises:
        FormatError: The file is not an array, contains objects, or has another length than its header says.
    """
    with path.open("rb") as file:
        dtype, shape = npy.read_header(file, path.stat().st_size, name)
    return InspectedArray(dtype, list(shape))


def _inspected(path: str, progress: Progress, name: str) -> InspectedModel | InspectedArray:
    """Inspect a file in the separate process."""
    del progress  # not reported
    with Path(path).open("rb") as file:
        head = file.read(8)
    if head.startswith(npy.MAGIC) or name.lower().endswith(".npy"):
        return inspect_array(Path(path), name)
    return inspect_model(Path(path), name)


def inspect_model(path: Path, name: str) -> InspectedModel:
    """Return the inputs and outputs of a model.

    Raises:
        FormatError, SourceError: The model cannot be read, or it has no usable inputs.
    """
    with path.open("rb") as file:
        head = file.read(8)
    if not head:
        raise FormatError(
            msg("queue.file_empty", f"{name}: the file is empty"), msg("queue.upload_cut", "was the upload cut?")
        )
    if head.startswith(GZIP_MAGIC):
        raise FormatError(
            msg("queue.packed_gzip", f"{name}: packed with gzip"),
            msg("queue.unpack_first_gunzip", "unpack it first: gunzip"),
        )
    if head.startswith(zips.MAGIC):
        zips.check_zip(path, name)
    try:
        format, inputs, outputs, counts = _read(Source(path), name)
    except TaskFailure as failure:
        raise FormatError(f"{name}: {failure.error}", failure.hint) from failure
    except VisualprofError as error:
        error.error = error.error.replace(path.name, name)
        raise
    except RecursionError as error:
        raise FormatError(
            msg("queue.model_nests_too_deep", f"{name}: the model nests too deep to be read"), supported_hint()
        ) from error
    inputs, batch = _batched(inputs) if format.free_batch else (inputs, {})
    if not format.self_contained:
        _refuse_unusable(inputs, name, format.typed_inputs)
    external = EXTERNAL[format.name](path, name) if format.name in EXTERNAL else []
    dims = _sizes(inputs) | batch
    model = _model(format.name, inputs, outputs, dims, _warnings(format, inputs), external)
    return with_weights_named(name, replace(model, **counts))


def with_weights_named(name: str, model: InspectedModel) -> InspectedModel:
    """Return the model with its weight file's name derived from `name`, as OpenVINO expects it."""
    return replace(model, external=[External(f"{Path(name).stem}.bin", 0)]) if model.format == "openvino" else model


def _read(source: Source, name: str) -> tuple[FileFormat, list[Tensor], list[Tensor], dict[str, Any]]:
    """Return format, inputs, outputs and counts of a model; outputs and counts are empty if only a backend reads it.

    Raises:
        FormatError, SourceError, TaskFailure: The model cannot be read.
    """
    kind = recognize_model(source)
    if kind is not None:
        graph = kind.graph(source)
        return *_of_graph(graph, source.path, name), _counts(graph)
    head = source.head()
    for format in all_formats().values():
        if format.sniff and format.inputs and format.sniff(head):
            return format, [Tensor(i.name, i.dtype, list(i.dims)) for i in format.inputs(source.path)], [], {}
    refused = rejection_reason(name, head)
    error = (
        refused.error
        if refused
        else msg("queue.neither_model_nor_array", f"{name}: neither a model nor an array by its content")
    )
    near = {suffix: hint for format in all_formats().values() for suffix, hint in format.suffix_hints.items()}
    raise FormatError(error, near.get(Path(name).suffix.lower()) or supported_hint())


def _of_graph(graph: ModelGraph, path: Path, name: str) -> tuple[FileFormat, list[Tensor], list[Tensor]]:
    format = all_formats().get(graph.format)
    if format is None:
        raise FormatError(
            msg("queue.model_can_looked_here", f"{name}: a model that can be looked at here, but not run"),
            supported_hint(),
        )
    nodes = [n for n in graph.nodes if not n.scope]
    inputs = [_tensor(graph, n, format) for n in nodes if n.kind == "input"]
    return format, inputs, [_tensor(graph, n) for n in nodes if n.kind == "output"]


def _counts(graph: ModelGraph) -> dict[str, Any]:
    """Return the number of parameters, None if a size is unknown, and the number of operators per type."""
    sizes = [graph.values[row].parameters for row in graph.stored_constants()]
    operators = Counter(n.type for n in graph.nodes if n.kind == "operator")
    return {"parameters": None if -1 in sizes else sum(sizes), "operators": dict(operators)}


def supported_hint() -> str:
    """Return which files can be uploaded, as a hint."""
    *titles, last = [format.title for format in all_formats().values()]
    return msg(
        "queue.visualprof_runs_inputs_npy",
        f"visualprof runs {', '.join(titles)} and {last}; inputs are .npy or .npz files",
    )


def safe_name(name: str) -> str:
    """Return a file name without folders, control characters and excess length; never empty, never hidden."""
    last = name.replace("\\", "/").rpartition("/")[2]
    plain = "".join(c if c.isprintable() else "_" for c in last).strip(" .") or "model"
    stem, dot, suffix = plain.rpartition(".")
    ending = f".{suffix}" if dot and len(suffix.encode()) <= 16 else ""
    room = NAME_BYTES - len(ending.encode())
    return (stem if ending else plain).encode()[:room].decode("utf-8", "ignore") + ending


def model_name(name: str, format: str) -> str:
    """Return a safe file name with a suffix of the format; the format's first suffix is appended if necessary."""
    safe, file_format = safe_name(name), all_formats().get(format)
    suffixes = file_format.suffixes if file_format else ()
    return safe if not suffixes or Path(safe).suffix.lower() in suffixes else safe + suffixes[0]


def backends_of(format: str) -> list[str]:
    """Return the names of the backends that load a format."""
    return [b.name for b in all_backends() if format in b.formats]


def inspection_to_json(content: Inspected) -> dict[str, Any]:
    """Return an inspection as JSON types; `inspection_from_json` is the inverse."""
    return {"kind": KINDS[type(content)], **asdict(content)}


def inspection_from_json(inspection: dict[str, Any]) -> Inspected:
    """Return a stored inspection, with the currently available backends."""
    if inspection["kind"] == "array":
        return InspectedArray(inspection["dtype"], inspection["shape"])
    if inspection["kind"] == "part":
        return InspectedPart(inspection["size_bytes"])
    inputs, outputs = ([Tensor(**t) for t in inspection[key]] for key in ("inputs", "outputs"))
    external = [External(**file) for file in inspection.get("external", ())]
    model = _model(inspection["format"], inputs, outputs, inspection["dims"], inspection["warnings"], external)
    return replace(model, parameters=inspection.get("parameters"), operators=inspection.get("operators"))


def _model(
    format: str,
    inputs: list[Tensor],
    outputs: list[Tensor],
    dims: dict[str, int],
    warnings: list[str],
    external: list[External],
) -> InspectedModel:
    file_format = all_formats().get(format)
    fixed = file_format is not None and file_format.fixed_inputs
    return InspectedModel(
        format=format,
        inputs=inputs,
        outputs=outputs,
        dims=dims,
        backends=backends_of(format),
        warnings=warnings,
        fixed_inputs=fixed,
        external=external,
    )


def _tensor(graph: ModelGraph, node: Node, named: FileFormat | None = None) -> Tensor:
    """Return a tensor of a graph.

    With `named`, unknown dimensions of an input get names, so that a job can set their sizes.
    """
    value = graph.values[(node.outputs or node.inputs)[0]]
    if value.shape is None:
        return Tensor(node.name, value.dtype, None)
    dims: list[int | str | None] = []
    for i, size in enumerate(value.shape):
        unknown = not size or size == "?" or (isinstance(size, int) and size < 0)
        dim_name = _dim_name("batch" if named.leading_batch and not i else f"{node.name}_dim{i}") if named else None
        dims.append(dim_name if unknown else _dim_name(size) if isinstance(size, str) else size)
    return Tensor(node.name, value.dtype, dims)


def _dim_name(text: str) -> str:
    """Return a name that differs from a size and a list of names: `2*batch, x` becomes `dim_2*batch__x`."""
    plain = re.sub(r"[^\w.*+/()-]", "_", text)[:80]
    return plain if re.match(r"[^\W\d]", plain) else f"dim_{plain}"


def _batched(inputs: list[Tensor]) -> tuple[list[Tensor], dict[str, int]]:
    """Name a first dimension that all inputs share `batch`; return the inputs, and its size in the file."""
    firsts = {t.dims[0] if t.dims else None for t in inputs}
    if len(firsts) != 1 or None in firsts:
        return inputs, {}
    named = [Tensor(t.name, t.dtype, ["batch", *(t.dims or [])[1:]]) for t in inputs]
    (size,) = firsts
    return named, {"batch": size} if isinstance(size, int) else {}


def _sizes(inputs: list[Tensor]) -> dict[str, int]:
    """Return initial sizes, guessed from the position of each dimension."""
    sizes: dict[str, int] = {}
    for tensor in inputs:
        for i, size in enumerate(tensor.dims or []):
            if isinstance(size, str):
                sizes[size] = FIRST_SIZE if i == 0 else sizes.get(size, OTHER_SIZE)
    return sizes


def _refuse_unusable(inputs: list[Tensor], name: str, declared: bool) -> None:
    """Raise an error if the inputs cannot be fed with arrays.

    Raises:
        FormatError: There are no inputs, or one that cannot be an array.
    """
    if not inputs:
        raise FormatError(
            msg("queue.model_no_inputs_so", f"{name}: the model has no inputs, so there is nothing to measure it with"),
            supported_hint(),
        )
    if len(inputs) > MAX_INPUTS:
        raise FormatError(
            msg("queue.model_inputs", f"{name}: the model has {len(inputs):,} inputs"),
            msg("queue.most_can_fed", f"at most {MAX_INPUTS} can be fed"),
        )
    names = [t.name for t in inputs]
    if len(set(names)) < len(names) or not all(0 < len(n) <= INPUT_NAME_MAX for n in names):
        raise FormatError(
            msg(
                "queue.two_inputs_one_name",
                f"{name}: two inputs have one name, or a name is empty or over {INPUT_NAME_MAX} characters",
            ),
            msg("queue.name_inputs_when_exporting", "name the inputs when exporting (input_names=...)"),
        )
    for tensor in inputs:
        subject = msg("queue.input", f"{name}: its input {tensor.name!r}")
        if declared and not tensor.dtype:
            raise FormatError(
                msg("queue.no_tensor", f"{subject} is no tensor"),
                msg("queue.export_model_tensors_only", "export the model with tensors only as inputs"),
            )
        if declared and tensor.dtype not in DTYPES:
            raise FormatError(
                msg("queue.type", f"{subject} is of type {tensor.dtype}"),
                msg("queue.what_can_fed", f"what can be fed: {', '.join(DTYPES)}"),
            )
        if len(tensor.dims or []) > MAX_RANK:
            raise FormatError(
                msg("queue.dimensions", f"{subject} has {len(tensor.dims or [])} dimensions"),
                msg("queue.array_most", f"an array has at most {MAX_RANK}"),
            )


def _warnings(format: FileFormat, inputs: list[Tensor]) -> list[str]:
    """Return what a user should know before submitting a job."""
    if format.self_contained:
        return []
    if any(t.dims is None for t in inputs):
        return [
            msg(
                "queue.file_not_say_types",
                "the file does not say types and shapes of its inputs: fill them in, as dtype and dims",
            )
        ]
    if not any(isinstance(d, str) for t in inputs for d in t.dims or []):
        return [
            msg(
                "queue.every_dimension_fixed_so",
                f"every dimension is fixed, so the batch cannot be swept; {format.sweep_hint}",
            )
        ]
    guessed = sorted({d for t in inputs for d in (t.dims or [])[1:] if isinstance(d, str)})
    first = {t.dims[0] for t in inputs if t.dims}
    return [
        msg("queue.file_no_size_guess", f"the file has no size for {d}: {OTHER_SIZE} is a guess")
        for d in guessed
        if d not in first
    ]
