"""Create a call of a MegEngine operator from shapes, types and parameters, which its profiles contain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from visualprof.messages import msg
from visualprof.remote.operators import Call, check_call, is_list, is_word

# Element types by their name in profiles.
TYPES = {
    "Float32": "float32",
    "Float16": "float16",
    "BFloat16": "bfloat16",
    "Int32": "int32",
    "Int16": "int16",
    "Int8": "int8",
    "Uint8": "uint8",
    "Bool": "bool",
}
TRANSFERS = (
    "ImmutableTensor",
    "SharedDeviceTensor",
    "Host2DeviceCopy",
    "InputCallback",
    "OutputCallback",
    "ComputingGraphImpl::CallbackCaller",
    "MultipleDeviceTensorHolder",
    "VirtualDep",
)
FLAGS = ("axis", "begin", "end", "step", "idx")  # of an index item, in MegEngine's order


def recorded_call(row: Mapping[str, str], recorded: Mapping[str, Any], _model: object = None) -> Call:
    """Return a call from the columns of the view `calls`, which are JSON texts.

    Raises:
        ValueError: The call cannot run alone; the message says why.
    """
    name = row["name"]
    if name in TRANSFERS:
        raise ValueError(
            msg("server.hands_tensors_over_run", f"{name} hands tensors over: run an operator that computes")
        )
    try:
        shapes, types, parameters, outputs = (
            json.loads(row[column] or "null")
            for column in ("input_shapes", "input_types", "input_values", "output_shapes")
        )
        kinds: list[Any] = [*(types or []), *[None] * len(shapes)]
        arguments = [_tensor(name, shape, kind) for shape, kind in zip(shapes, kinds, strict=False)]
        form: dict[str, Any] = {"outputs": outputs or []}
        if is_list(parameters):
            form["items"] = [[int(item[flag]) for flag in FLAGS] for item in parameters]
            parameters = {}
        attributes: dict[str, Any] = dict(parameters or {})
        if attributes.get("mode") == name:  # a timeline names elementwise operators by their mode
            name = "Elemwise"
        if not all(map(_is_attribute, attributes.values())):
            raise ValueError(
                msg("server.parameter_neither_number_nor", "a parameter is neither a number nor the name of a mode")
            )
        return check_call(Call(name, arguments, dict(recorded), "megengine", attributes, form))
    except (TypeError, AttributeError, KeyError, RecursionError, ValueError) as error:
        raise ValueError(
            msg("server.profiles_inputs_cannot_read", f"the profile's inputs of {name[:100]} cannot be read: {error}")
        ) from None


def _tensor(name: str, shape: Any, kind: Any) -> dict[str, Any]:
    if kind is not None and kind not in TYPES:
        raise ValueError(
            msg(
                "server.input_type_which_cannot",
                f"an input of {name} has the type {str(kind)[:40]}, which cannot be made",
            )
        )
    return {"shape": shape, "strides": None, "dtype": TYPES[kind] if kind else None}


def _is_attribute(value: Any) -> bool:
    return all(isinstance(item, (int, float)) or is_word(item) for item in (value if is_list(value) else [value]))
