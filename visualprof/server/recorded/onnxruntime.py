"""Create a call of an ONNX Runtime operator: shapes and types of its profile, attributes and constants of its model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from visualprof.messages import msg
from visualprof.reader.models.onnx_nodes import Constant, OnnxNode
from visualprof.remote.operators import MAX_VALUES, WORD, Call, check_call, is_list, is_word

# Element types by their name in profiles: our name and ONNX's number.
TYPES = {
    "float": ("float32", 1),
    "uint8": ("uint8", 2),
    "int8": ("int8", 3),
    "int16": ("int16", 5),
    "int32": ("int32", 6),
    "int64": ("int64", 7),
    "bool": ("bool", 9),
    "float16": ("float16", 10),
    "double": ("float64", 11),
    "bfloat16": ("bfloat16", 16),
}
NUMBERS = {number: (text, name) for text, (name, number) in TYPES.items()}
TENSOR = re.compile(r"(\w{1,30})\[([\d,]{0,600})\]", re.ASCII)
OPSET = 17  # of an operator without a known model
DOMAINS = ("", "com.microsoft", "com.microsoft.nchwc")
BLOCKED = ("ReorderInput", "ReorderOutput")
OPTIMIZED_HINT = msg(
    "server.put_optimised_model_beside",
    "put the optimized model, which optimized_model_filepath writes, next to the profile",
)
BODIES = ("If", "Loop", "Scan", "SequenceMap")
# Places of inputs whose values determine the work. Some follow from the outputs of the run.
VALUES = {
    "Reshape": (1,),
    "Expand": (1,),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
    "Slice": (1, 2, 3, 4),
    "Tile": (1,),
    "Unsqueeze": (1,),
    "Squeeze": (1,),
    "OneHot": (1,),
    "TopK": (1,),
    "Pad": (1, 3),
    "Split": (1,),
    "CumSum": (1,),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "Trilu": (1,),
    "NonMaxSuppression": (2,),
    "CenterCropPad": (1,),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"), (1,)),
}
SHAPED = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}  # inputs that are the shape of the output

Tensor = dict[str, Any]


def recorded_call(row: Mapping[str, str], recorded: Mapping[str, Any], node: OnnxNode | None) -> Call:
    """Return a call from the columns of the view `calls`.

    Args:
        row: `name`, `node`, and `input_shapes` and `output_shapes` such as `float[2,3] int64[]`.
        recorded: Values of the recorded run.
        node: The node of the model, `None` if there is no model.

    Raises:
        ValueError: The call cannot run alone; the message says why.
    """
    name = row["name"]
    if node is None and (name in BLOCKED or row["node"].endswith("_nchwc")):
        raise ValueError(
            msg("server.runs_onnx_runtimes_own", f"{name} runs in ONNX Runtime's own layout NCHWc: {OPTIMIZED_HINT}")
        )
    if name in BODIES or (node and None in [*node.attributes.values()]):
        raise ValueError(
            msg("server.runs_body_model_run", f"{name} runs a body of the model: run an operator inside it")
        )
    inputs, outputs = _tensors(row["input_shapes"]), _tensors(row["output_shapes"])
    form: dict[str, Any] = {"opset": node.opset if node else OPSET, "outputs": [output["dtype"] for output in outputs]}
    if node is None:
        _check_plain(name, len(inputs))
        arguments: list[Any] = [*inputs]
    else:
        if node.domain not in DOMAINS:
            raise ValueError(
                msg(
                    "server.domain_onnx_onnx_runtime",
                    f"{name} belongs to the domain {node.domain[:60]!r}; only ONNX and ONNX Runtime operators can run",
                )
            )
        form["domain"] = node.domain
        arguments = _aligned(name, inputs, node)
        is_used = [*node.outputs]
        if sum(is_used) == len(outputs):
            kinds = iter(form["outputs"])
            form["outputs"] = [next(kinds) if used else None for used in is_used]
    for place in VALUES.get(name, ()):
        if place < len(arguments) and arguments[place] is not None and "values" not in arguments[place]:
            arguments[place] |= {"values": _derive_values(name, place, arguments[place], outputs)}
    attributes = {key: _attribute(name, key, value) for key, value in (node.attributes if node else {}).items()}
    return check_call(Call(name, arguments, dict(recorded), "onnxruntime", attributes, form))


def _tensors(text: str) -> list[Tensor]:
    """Parse tensors.

    Raises:
        ValueError: ONNX Runtime does not write such a text.
    """
    tensors: list[Tensor] = []
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
        tensors.append({"shape": sides, "strides": None, "dtype": TYPES[match[1]][0]})
    return tensors


def _check_plain(name: str, input_count: int) -> None:
    """Check that the profile has all that an operator without a model needs.

    Raises:
        ValueError: Something is missing.
    """
    import onnx

    hint = msg("server.put_onnx_model_ran", "put the ONNX model that ran next to the profile, or name it")
    try:
        schema = onnx.defs.get_schema(name, OPSET)
    except (onnx.defs.SchemaError, TypeError):
        raise ValueError(
            msg(
                "server.profile_neither_domain_nor",
                f"the profile has neither the domain nor the attributes of {name}: {hint}",
            )
        ) from None
    if schema.attributes:
        raise ValueError(msg("server.profile_no_attributes", f"the profile has no attributes of {name}: {hint}"))
    if input_count < schema.min_input:
        raise ValueError(
            msg(
                "server.profile_lacks_input_weight",
                f"the profile lacks an input of {name}, a weight that was packed: {hint}",
            )
        )


def _aligned(name: str, tensors: list[Tensor], node: OnnxNode) -> list[Any]:
    """Return the value of each input of the node. The profile lacks omitted inputs and packed weights.

    Raises:
        ValueError: The profile and the node do not match.
    """
    arguments: list[Any] = []
    rest, left = list(tensors), sum(node_input is not None for node_input in node.inputs)
    for node_input in node.inputs:
        if node_input is None:
            arguments.append(None)
            continue
        constant = _constant(node_input) if isinstance(node_input, Constant) else None
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
                f"the inputs of {name} do not match the node of the model: check that this is the model that ran",
            )
        )
    return arguments


def _alike(tensor: Tensor, other: Tensor) -> bool:
    return (tensor["shape"], tensor["dtype"]) == (other["shape"], other["dtype"])


def _constant(constant: Constant) -> Tensor:
    """Return a constant, with its values if they are a few whole numbers; other constants get random values."""
    tensor: Tensor = {"shape": [*constant.shape], "strides": None, "dtype": NUMBERS.get(constant.dtype, ("", None))[1]}
    tensor["constant"] = True
    whole = constant.values is not None and (constant.dtype in (2, 3, 5, 6, 7) or len(constant.values) <= 1)
    return tensor | ({"values": [*constant.values]} if whole and constant.values is not None else {})


def _derive_values(name: str, place: int, tensor: Tensor, outputs: list[Tensor]) -> list[int]:
    """Return values of an input, derived from the output of the run.

    Raises:
        ValueError: The output does not determine them.
    """
    shape: list[int] = outputs[0]["shape"] if outputs else []
    if outputs and SHAPED.get(name) == place and tensor["shape"] == [len(shape)] and len(shape) <= MAX_VALUES:
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
    """Return an attribute.

    Raises:
        ValueError: The attribute is not a number, a word, a list of them, or a small tensor.
    """
    value = value.replace(" ", "") if isinstance(value, str) else value
    if isinstance(value, Constant) and value.values is not None and value.dtype in NUMBERS:
        return {key: item for key, item in _constant(value).items() if key != "constant"} | {"values": [*value.values]}
    fitting = all(isinstance(item, (int, float)) or is_word(item) for item in (value if is_list(value) else [value]))
    if not WORD.fullmatch(key) or not fitting:
        raise ValueError(
            msg(
                "server.attribute_neither_numbers_nor",
                f"{name} has an attribute {key[:60]!r} that is neither numbers nor the name of a mode",
            )
        )
    return value
