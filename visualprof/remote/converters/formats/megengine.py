"""Dumped MegEngine graphs."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from visualprof.remote.converters import formats
from visualprof.remote.converters.formats import Content

HOLDERS = ("ImmutableTensor", "SharedDeviceTensor", "MultipleDeviceTensorHolder")
HIDDEN = ("Host2DeviceCopy", *HOLDERS)


def read(path: Path) -> Any:
    """Return a loaded graph, not compiled."""
    graphs: Any = importlib.import_module("megengine.core.tensor.megbrain_graph")
    with path.open("rb") as file:
        return graphs.load_graph(file)


def check(path: Path) -> None:
    """Load and compile a graph, and run it once with zeros, because some graphs fail or hang only then."""
    run(path, {})


def run(path: Path, feeds: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of a run as arrays.

    Args:
        path: The graph.
        feeds: Arrays by the input's name; missing inputs are zeros.
    """
    np: Any = importlib.import_module("numpy")
    mge: Any = importlib.import_module("megengine")
    tools: Any = importlib.import_module("megengine.utils.comp_graph_tools")
    loaded = read(path)
    outs = loaded.output_vars_list
    places = tools.get_dep_vars(outs, "Host2DeviceCopy")
    names = [place.name for place in places]
    outs, inputs = tools.convert_inputs(outs, inputs=places)
    outs, outputs = tools.convert_outputs(outs)
    function = loaded.graph.compile(outs)
    for name, place in zip(names, inputs.values(), strict=True):
        source = place.outputs[0]
        values = feeds[name] if name in feeds else np.zeros(source.shape, source.dtype)
        place.set_value(mge.Tensor(values)._dev_tensor())  # noqa: SLF001
    function.execute()
    function.wait()
    return [output.get_value().numpy() for output in outputs.values()]


def content(path: Path) -> Content:
    """Return operators with their parameters and output types, and the stored values."""
    tools: Any = importlib.import_module("megengine.utils.comp_graph_tools")
    operators: Counter[str] = Counter()
    parts: list[object] = []
    for node in tools.get_oprs_seq(read(path).output_vars_list, prune_reshape=False, prune_immtensor=False):
        kind = str(node.type)
        operators[kind] += kind not in HIDDEN
        parts.append((kind, str(node.params), [_output(out, kind in HOLDERS) for out in node.outputs]))
    return formats.content(parts, +operators)


def _output(out: Any, has_values: bool) -> tuple[str, str, str]:
    try:
        dtype = str(out.dtype)
    except RuntimeError:  # workspaces have a type that numpy does not have
        dtype = ""
    return dtype, str(out.shape), sha256(out.value.tobytes()).hexdigest() if has_values else ""
