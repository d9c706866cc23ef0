"""MegEngine's dumped graphs."""

from __future__ import annotations

import importlib
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

from visualprof.remote.converters import formats
from visualprof.remote.converters.formats import Content

HIDDEN = ("Host2DeviceCopy", "ImmutableTensor", "SharedDeviceTensor", "MultipleDeviceTensorHolder")


def read(path: Path) -> Any:
    """A loaded graph, not compiled."""
    graphs: Any = importlib.import_module("megengine.core.tensor.megbrain_graph")
    with path.open("rb") as file:
        return graphs.load_graph(file)


def check(path: Path) -> None:
    """Loads and compiles it."""
    loaded = read(path)
    loaded.graph.compile(loaded.output_vars_list)


def content(path: Path) -> Content:
    """Operators with their parameters and the types of their outputs, and the values that they keep."""
    tools: Any = importlib.import_module("megengine.utils.comp_graph_tools")
    operators: Counter[str] = Counter()
    parts: list[object] = []
    for node in tools.get_oprs_seq(read(path).output_vars_list, prune_reshape=False, prune_immtensor=False):
        kind = str(node.type)
        operators[kind] += kind not in HIDDEN
        parts.append((kind, str(node.params), [(str(out.dtype), str(out.shape)) for out in node.outputs]))
    return formats.content([*parts, sha256(path.read_bytes()).hexdigest()], +operators)
