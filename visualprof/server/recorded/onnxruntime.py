"""A call of an operator of ONNX Runtime: shapes and types of its profile, attributes and constants of its model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from visualprof.messages import msg
from visualprof.reader.models.onnx_nodes import Constant, OnnxNode
from visualprof.remote.operators import MAX_VALUES, WORD, Call, check_call, is_list, is_word

# How a profile calls the type of an element; the number is ONNX's.
TYPES = {
    "float": ("float32", 1), "uint8": ("uint8", 2), "int8": ("int8", 3), "int16": ("int16", 5), "int32": ("int32", 6),
    "int64": ("int64", 7), "bool": ("bool", 9), "float16": ("float16", 10), "double": ("float64", 11),
    "bfloat16": ("bfloat16", 16),
}  # fmt: skip
NUMBERS = {number: (text, name) for text, (name, number) in TYPES.items()}
TENSOR = re.compile(r"(\w{1,30})\[([\d,]{0,600})\]", re.ASCII)
OPSET = 17  # of an operator whose model is not known
DOMAINS = ("", "com.microsoft", "com.microsoft.nchwc")
BLOCKED = ("ReorderInput", "ReorderOutput")
OPTIMISED = msg(
    "server.put_optimised_model_beside",
    "put the optimised model beside the profile, which optimized_model_filepath writes",
)
BODIES = ("If", "Loop", "Scan", "SequenceMap")
# Inputs whose values say what is done, by place; what the outputs of the run tell of them, where they do.
VALUES = {
    "Reshape": (1,), "Expand": (1,), "ConstantOfShape": (0,), "Range": (0, 1, 2), "Slice": (1, 2, 3, 4), "Tile": (1,),
    "Unsqueeze": (1,), "Squeeze": (1,), "OneHot": (1,), "TopK": (1,), "Pad": (1, 3), "Split": (1,), "CumSum": (1,),
    "Resize": (1, 2, 3), "Upsample": (1,), "Trilu": (1,), "NonMaxSuppression": (2,), "CenterCropPad": (1,),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"), (1,)),
}  # fmt: skip
SHAPED = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}  # inputs that are the shape of the output

Tensor = dict[str, Any]


def recorded_call(row: Mapping[str, str], recorded: Mapping[str, Any], node: OnnxNode | None) -> Call:
    """A call by the columns of the view `calls`: name, node, input_shapes, output_shapes as `float[2,3] int64[]`.

    Args: node: that of the model, where there is one.
    Raises: ValueError: it cannot be run alone; the message says why.
    """
    name = row["name"]
    if node is None and (name in BLOCKED or row["node"].endswith("_nchwc")):
        raise ValueError(
            msg("server.runs_onnx_runtimes_own", f"{name} runs in ONNX Runtime's own layout NCHWc: {OPTIMISED}")
        )
    if name in BODIES or (node and None in [*node.attributes.values()]):
        raise ValueError(
            msg("server.runs_body_model_run", f"{name} runs a body of the model: run an operator inside it")
        )
    given, made = _tensors(row["input_shapes"]), _tensors(row["output_shapes"])
    form: dict[str, Any] = {"opset": node.opset if node else OPSET, "outputs": [one["dtype"] for one in made]}
    if node is None:
        _check_plain(name, len(given))
        arguments: list[Any] = [*given]
    else:
        if node.domain not in DOMAINS:
            raise ValueError(
                msg(
                    "server.domain_onnx_onnx_runtime",
                    f"{name} is of the domain {node.domain[:60]!r}; those of ONNX and ONNX Runtime are run",
                )
            )
        form["domain"] = node.domain
        arguments = _aligned(name, given, node)
        taken = [*node.outputs]
        if sum(taken) == len(made):
            kinds = iter(form["outputs"])
            form["outputs"] = [next(kinds) if one else None for one in taken]
    for place in VALUES.get(name, ()):
        if place < len(arguments) and arguments[place] is not None and "values" not in arguments[place]:
            arguments[place] |= {"values": _derive_values(name, place, arguments[place], made)}
    attributes = {key: _attribute(name, key, value) for key, value in (node.attributes if node else {}).items()}
    return check_call(Call(name, arguments, dict(recorded), "onnxruntime", attributes, form))


def _tensors(text: str) -> list[Tensor]:
    """Tensors of a text. Raises: ValueError: it is none that ONNX Runtime writes."""
    found: list[Tensor] = []
    for part in text.split():
        match = TENSOR.fullmatch(part)
        if not match or match[1] not in TYPES:
            raise ValueError(
                msg(
                    "server.profile_value_which_no",
                    f"the profile has a value {part[:40]!r}, which is no tensor of numbers",
                )
            )
        sides = [int(side) for side in match[2].split(",") if side]
        found.append({"shape": sides, "strides": None, "dtype": TYPES[match[1]][0]})
    return found


def _check_plain(name: str, given: int) -> None:
    """Raises: ValueError: what an operator without a model needs is not in the profile."""
    import onnx

    beside = msg("server.put_onnx_model_ran", "put the ONNX model that ran beside the profile, or name it")
    try:
        schema = onnx.defs.get_schema(name, OPSET)
    except (onnx.defs.SchemaError, TypeError):
        raise ValueError(
            msg(
                "server.profile_neither_domain_nor",
                f"the profile has neither the domain nor the attributes of {name}: {beside}",
            )
        ) from None
    if schema.attributes:
        raise ValueError(msg("server.profile_no_attributes", f"the profile has no attributes of {name}: {beside}"))
    if given < schema.min_input:
        raise ValueError(
            msg(
                "server.profile_lacks_input_weight",
                f"the profile lacks an input of {name}, a weight that was packed: {beside}",
            )
        )


def _aligned(name: str, given: list[Tensor], node: OnnxNode) -> list[Any]:
    """Each input of the node: a tensor of the profile, which lacks those that are left out and weights that are packed.

    Raises: ValueError: they do not fit.
    """
    arguments: list[Any] = []
    rest, left = list(given), sum(one is not None for one in node.inputs)
    for one in node.inputs:
        if one is None:
            arguments.append(None)
            continue
        constant = _constant(one) if isinstance(one, Constant) else None
        if rest and (constant is None or left == len(rest) or _alike(constant, rest[0])):
            tensor = rest.pop(0)
        elif constant is not None:
            tensor = constant
        else:
            break
        left -= 1
        extra = {key: constant[key] for key in ("values", "constant") if key in constant} if constant else {}
        arguments.append({**tensor, **(extra if constant and _alike(constant, tensor) else {})})
    if rest or left:
        raise ValueError(
            msg(
                "server.inputs_not_models_node",
                f"the inputs of {name} are not those of the model's node: is it the model that ran?",
            )
        )
    return arguments


def _alike(one: Tensor, other: Tensor) -> bool:
    return (one["shape"], one["dtype"]) == (other["shape"], other["dtype"])


def _constant(one: Constant) -> Tensor:
    """A constant, with its values where they are a few whole numbers; others are random."""
    tensor: Tensor = {"shape": [*one.shape], "strides": None, "dtype": NUMBERS.get(one.dtype, ("", None))[1]}
    tensor["constant"] = True
    whole = one.values is not None and (one.dtype in (2, 3, 5, 6, 7) or len(one.values) <= 1)
    return tensor | ({"values": [*one.values]} if whole and one.values is not None else {})


def _derive_values(name: str, place: int, tensor: Tensor, made: list[Tensor]) -> list[int]:
    """Return values of an input, derived from the output of the run.

    Raises:
        ValueError: The output does not determine them.
    """
    shape: list[int] = made[0]["shape"] if made else []
    if made and SHAPED.get(name) == place and tensor["shape"] == [len(shape)] and len(shape) <= MAX_VALUES:
        return shape
    if name == "Range" and len(shape) == 1 and tensor["dtype"] in ("int32", "int64"):
        return [(0, shape[0], 1)[place]]
    if math.prod(tensor["shape"]) == 0:
        return []
    raise ValueError(
        msg(
            "server.profile_no_values_input",
            f"the profile has no values of input {place} of {name}, and it is no constant of a model",
        )
    )


def _attribute(name: str, key: str, value: Any) -> Any:
    """Raises: ValueError: it is not a number, a word, a list of them or a small tensor."""
    value = value.replace(" ", "") if isinstance(value, str) else value
    if isinstance(value, Constant) and value.values is not None and value.dtype in NUMBERS:
        return {key: one for key, one in _constant(value).items() if key != "constant"} | {"values": [*value.values]}
    fitting = all(isinstance(one, (int, float)) or is_word(one) for one in (value if is_list(value) else [value]))
    if not WORD.fullmatch(key) or not fitting:
        raise ValueError(
            msg(
                "server.attribute_neither_numbers_nor",
                f"{name} has an attribute {key[:60]!r} that is neither numbers nor the name of a mode",
            )
        )
    return value
