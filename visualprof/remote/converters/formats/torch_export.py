"""torch.export programs (.pt2)."""

from __future__ import annotations

import importlib
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

from visualprof.remote.backends.torch.exported import load_program
from visualprof.remote.converters import formats
from visualprof.remote.converters.formats import Content


def read(path: Path) -> Any:
    """Return a program. Nothing is unpickled."""
    return load_program(importlib.import_module("torch"), path)


def check(path: Path) -> None:
    """Load a program."""
    read(path)


def content(path: Path) -> Content:
    """Return operators with their result types, and weights with their layout in memory."""
    torch: Any = importlib.import_module("torch")
    program = read(path)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    operators = Counter(str(node.target) for node in calls)
    parts: list[object] = [(str(node.target), str(node.meta.get("val"))) for node in calls]
    tensors = [*program.state_dict.values(), *program.constants.values()]
    for t in (tensor for tensor in tensors if isinstance(tensor, torch.Tensor)):
        data = t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        parts.append((str(t.dtype), tuple(t.shape), tuple(t.stride()), sha256(data).hexdigest()))
    return formats.content(parts, operators)
