"""Inputs of a MegEngine TracedModule (`.tm`), a pickle that is read without importing or calling anything.

A graph is stored by the structure of its arguments; the first of its inputs is the module itself.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.protocol import Input, TaskFailure

_CLASS = b"megengine.traced_module.traced_module"
#: Types by numpy's name in a pickle; an agent may have no numpy.
_DTYPES = {
    "f4": "float32",
    "f2": "float16",
    "i4": "int32",
    "i2": "int16",
    "i1": "int8",
    "u1": "uint8",
    "u2": "uint16",
    "b1": "bool",
}


class _Inert:
    """A placeholder for an object of any class, with its arguments and its state."""

    state: Any = None

    def __init__(self, *made_of: Any) -> None:
        self.made_of = made_of

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Ignore entries of dictionaries."""

    def append(self, value: Any) -> None:
        """Ignore entries of lists."""


class _Reader(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Return a placeholder class for every name, so that nothing is imported or executed."""
        return type(global_name, (_Inert,), {})


def is_traced_module(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of a TracedModule."""
    return head.startswith(b"\x80") and _CLASS in head[:100]


def read_inputs(path: Path) -> list[Input]:
    """Return the names, types and shapes of a module's inputs.

    Raises:
        TaskFailure: The file is damaged, or an input is not a tensor.
    """
    try:
        with path.open("rb") as file:
            (graph,) = _Reader(file).load().state["argdef_graph_map"].values()
        nodes = [(type(node).__name__, node.state) for node in graph.state["_inputs"][1:]]
        tensors = [state for kind, state in nodes if kind == "TensorNode"]
        inputs = [Input(s["_name"], _DTYPES[s["_dtype"].made_of[0]], list(s["_shape"])) for s in tensors]
    except Exception as error:  # noqa: BLE001 - a pickle can fail in any way
        hint = msg("remote.write_again_megengine_save", "write it again: megengine.save(trace_module(...), path)")
        raise TaskFailure(
            "input_error", msg("remote.not_whole_tracedmodule", f"not a whole TracedModule ({error})"), hint
        ) from None
    if len(inputs) < len(nodes):
        hint = msg("remote.trace_module_whose_inputs", "trace a module that takes only single tensors as inputs")
        raise TaskFailure(
            "input_error", msg("remote.tracedmodule_takes_nested_inputs", "this TracedModule takes nested inputs"), hint
        )
    return inputs
