"""Create a call of a Paddle operator from the shapes and types of a profile. Profiles have no attributes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from visualprof.messages import msg
from visualprof.remote.operators import Call, check_call, is_list

NAME = re.compile(r"(?:pd_op\.)?([a-z][a-z0-9_]{0,99})(?: dygraph)?", re.ASCII)
COMMUNICATES = re.compile(r"c_|.*(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier|send|recv)")


def recorded_call(row: Mapping[str, str], recorded: Mapping[str, Any], _model: object = None) -> Call:
    """Return a call from the columns of the view `calls`: `{"X": [[8, 8]]}` and `{"X": ["float32"]}`.

    Raises:
        ValueError: The call cannot run alone; the message says why.
    """
    match = NAME.fullmatch(row["name"])
    if not match or COMMUNICATES.match(match[1]):
        raise ValueError(
            msg(
                "server.node_autograd_talks_others",
                f"{row['name'][:100]!r} is a node of autograd or talks to others: run an operator that computes",
            )
        )
    try:
        shapes, types = json.loads(row["input_shapes"]), json.loads(row["input_types"] or "{}")
        arguments = [_argument(sides, types.get(name) or []) for name, sides in shapes.items() if sides]
    except (TypeError, AttributeError, RecursionError, ValueError) as error:
        raise ValueError(
            msg("server.profiles_inputs_cannot_read", f"the profile's inputs of {match[1]} cannot be read: {error}")
        ) from None
    return check_call(Call(match[1], arguments, dict(recorded), "paddle"))


def _argument(shapes: Any, types: list[Any]) -> dict[str, Any]:
    """Return one input: a tensor, or a list of tensors."""
    if not is_list(shapes):
        raise TypeError("they are no lists")
    kinds = [*types, *[None] * len(shapes)]
    tensors = [
        {"shape": sides, "strides": None, "dtype": kind or None} for sides, kind in zip(shapes, kinds, strict=False)
    ]
    return tensors[0] if len(tensors) == 1 else {"tensors": tensors}
