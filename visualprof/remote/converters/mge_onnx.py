"""Convert a dumped MegEngine graph to ONNX, for a fixed set of operators. The result is checked by running both."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from visualprof.messages import msg
from visualprof.remote.converters import Converter, Rows
from visualprof.remote.converters.formats import megengine, onnx
from visualprof.remote.protocol import TaskFailure

OPSET = 17
CONSTANTS = ("ImmutableTensor", "SharedDeviceTensor", "MultipleDeviceTensorHolder")
INPUT = "Host2DeviceCopy"
FAR = 1 << 31  # past the end of any axis
LARGEST_ERROR = 1e-3  # relative to the largest value
# Modes of Elemwise that equal one ONNX operator with the same inputs.
PLAIN = {
    name: value
    for name, _, value in (
        pair.partition("=")
        for pair in """
        ADD=Add SUB=Sub MUL=Mul TRUE_DIV=Div POW=Pow MAX=Max MIN=Min RELU=Relu SIGMOID=Sigmoid TANH=Tanh
        EXP=Exp LOG=Log ABS=Abs NEGATE=Neg ERF=Erf SIN=Sin COS=Cos FLOOR=Floor CEIL=Ceil SQRT=Sqrt
        H_SWISH=HardSwish SOFTPLUS=Softplus SIGN=Sign RECIPROCAL=Reciprocal
    """.split()
    )
}
REDUCTIONS = {"SUM": "ReduceSum", "MEAN": "ReduceMean", "PRODUCT": "ReduceProd", "MAX": "ReduceMax", "MIN": "ReduceMin"}
POOLS: dict[str, tuple[str, dict[str, int]]] = {
    "MAX": ("MaxPool", {}),
    "AVERAGE": ("AveragePool", {"count_include_pad": 1}),
    "AVERAGE_COUNT_EXCLUDE_PADDING": ("AveragePool", {"count_include_pad": 0}),
}
ENDINGS = {"IDENTITY": "", "RELU": "Relu", "SIGMOID": "Sigmoid", "H_SWISH": "HardSwish"}


class Graph:
    """The nodes and weights of the ONNX model so far. Values keep their MegEngine names."""

    def __init__(self) -> None:
        self.helper: Any = importlib.import_module("onnx.helper")
        self.arrays: Any = importlib.import_module("onnx.numpy_helper")
        self.np: Any = importlib.import_module("numpy")
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._names: dict[int, str] = {}

    def name(self, var: Any) -> str:
        """Return the name of a value, with its number if another value has that name."""
        if var.id not in self._names:
            taken = var.name in self._names.values()
            self._names[var.id] = f"{var.name}:{var.id}" if taken else var.name
        return self._names[var.id]

    def add(self, kind: str, inputs: Sequence[Any], output: Any = None, **attributes: Any) -> str:
        """Add a node and return the name of its output.

        Args:
            kind: Operator type.
            inputs: Names or values.
            output: Value of the output; `None` for a new name.
            attributes: Attributes of the node.
        """
        name = self.name(output) if output is not None else f"{kind}#{len(self.nodes)}"
        names = [value if isinstance(value, str) else self.name(value) for value in inputs]
        self.nodes.append(self.helper.make_node(kind, names, [name], f"{kind}#{len(self.nodes)}", **attributes))
        return name

    def weight(self, values: Any, name: str = "") -> str:
        """Add a constant and return its name."""
        name = name or f"const#{len(self.weights)}"
        self.weights.append(self.arrays.from_array(self.np.ascontiguousarray(values), name))
        return name

    def longs(self, *values: int) -> str:
        """Add a constant of int64 and return its name."""
        return self.weight(self.np.array(values, "int64"))


class UnsupportedOperator(Exception):
    """An operator or parameter outside of the supported set: `Reduce(mode=SUM_SQR)`."""

    def __init__(self, kind: str, **parameters: object) -> None:
        settings = ", ".join(f"{name}={value}" for name, value in parameters.items())
        super().__init__(f"{kind}({settings})" if settings else kind)


def constant_value(node: Any, var: Any) -> Any:
    """Return the value of an input that must be a constant."""
    if var.owner.type not in CONSTANTS:
        raise UnsupportedOperator(node.type, input=var.owner.type)
    return var.value


def _require(node: Any, **values: str) -> None:
    for name, value in values.items():
        if node.params.get(name, value) != value:
            raise UnsupportedOperator(node.type, **{name: node.params[name]})


def _elemwise(graph: Graph, node: Any) -> None:
    mode, inputs, output = node.params["mode"], node.inputs, node.outputs[0]
    if mode == "FUSE_ADD_RELU":
        graph.add("Relu", [graph.add("Add", inputs)], output)
    elif mode == "FUSE_MUL_ADD3":
        graph.add("Add", [graph.add("Mul", inputs[:2]), inputs[2]], output)
    elif mode == "SILU":
        graph.add("Mul", [inputs[0], graph.add("Sigmoid", inputs)], output)
    elif mode == "GELU":
        root, one, half = (graph.weight(graph.np.array(value, "float32")) for value in (2**0.5, 1.0, 0.5))
        grown = graph.add("Add", [graph.add("Erf", [graph.add("Div", [inputs[0], root])]), one])
        graph.add("Mul", [graph.add("Mul", [inputs[0], grown]), half], output)
    elif mode in PLAIN:
        graph.add(PLAIN[mode], inputs, output)
    else:
        raise UnsupportedOperator(node.type, mode=mode)


def _filters(graph: Graph, node: Any) -> tuple[str, int]:
    """Return the filters of a convolution in ONNX's layout, and the number of groups."""
    weight = node.inputs[1]
    if node.params["sparse"] == "DENSE":
        return graph.name(weight), 1
    values = constant_value(node, weight)
    groups, out, *rest = values.shape
    return graph.weight(values.reshape(groups * out, *rest)), groups


def _convolution(graph: Graph, node: Any, more: Sequence[str] = (), output: Any = None) -> str:
    _require(node, format="NCHW", mode="CROSS_CORRELATION")
    filters, groups = _filters(graph, node)
    param = node.params.__getitem__
    return graph.add(
        "Conv",
        [node.inputs[0], filters, *more],
        output,
        strides=[param("stride_h"), param("stride_w")],
        pads=[param("pad_h"), param("pad_w")] * 2,
        dilations=[param("dilate_h"), param("dilate_w")],
        group=groups,
    )


def _conv_bias(graph: Graph, node: Any) -> None:
    ending = node.params["nonlineMode"]
    if len(node.inputs) > 3 or ending not in ENDINGS:
        raise UnsupportedOperator(node.type, nonlineMode=ending, inputs=len(node.inputs))
    biases = [graph.weight(constant_value(node, bias).reshape(-1)) for bias in node.inputs[2:]]
    output = node.outputs[0]
    convolution = _convolution(graph, node, biases, None if ENDINGS[ending] else output)
    if ENDINGS[ending]:
        graph.add(ENDINGS[ending], [convolution], output)


def _batch_norm(graph: Graph, node: Any) -> None:
    _require(node, fwd_mode="INFERENCE", param_dim="DIM_1C11")
    weights = [graph.weight(constant_value(node, parameter).reshape(-1)) for parameter in node.inputs[1:]]
    epsilon = node.params["epsilon"]
    graph.add("BatchNormalization", [node.inputs[0], *weights], node.outputs[-1], epsilon=epsilon)


def _pooling(graph: Graph, node: Any) -> None:
    _require(node, format="NCHW")
    if node.params["mode"] not in POOLS:
        raise UnsupportedOperator(node.type, mode=node.params["mode"])
    kind, more = POOLS[node.params["mode"]]
    param = node.params.__getitem__
    graph.add(
        kind,
        node.inputs[:1],
        node.outputs[0],
        kernel_shape=[param("window_h"), param("window_w")],
        strides=[param("stride_h"), param("stride_w")],
        pads=[param("pad_h"), param("pad_w")] * 2,
        **more,
    )


def _matrix_mul(graph: Graph, node: Any) -> None:
    _require(node, format="DEFAULT")
    transposed = {"transA": int(node.params["transposeA"]), "transB": int(node.params["transposeB"])}
    if len(node.outputs[0].shape) == 2:
        graph.add("Gemm", node.inputs, node.outputs[0], **transposed)
        return
    sides = [
        graph.add("Transpose", [side], perm=[0, 2, 1]) if swapped else side
        for side, swapped in zip(node.inputs, transposed.values(), strict=True)
    ]
    graph.add("MatMul", sides, node.outputs[0])


def _shape(graph: Graph, node: Any) -> None:
    graph.add("Cast", [graph.add("Shape", node.inputs[:1])], node.outputs[0], to=graph.helper.TensorProto.INT32)


def _reshape(graph: Graph, node: Any, kind: str = "Reshape") -> None:
    sizes = graph.add("Cast", [node.inputs[1]], to=graph.helper.TensorProto.INT64)
    graph.add(kind, [node.inputs[0], sizes], node.outputs[0])


def _broadcast(graph: Graph, node: Any) -> None:
    _reshape(graph, node, "Expand")


def _reduce(graph: Graph, node: Any) -> None:
    _require(node, data_type="DEFAULT")
    mode, axis = node.params["mode"], node.params["axis"]
    if mode not in REDUCTIONS or len(node.inputs) != 1:
        raise UnsupportedOperator(node.type, mode=mode, inputs=len(node.inputs))
    if mode == "SUM":
        graph.add("ReduceSum", [node.inputs[0], graph.longs(axis)], node.outputs[0])
    else:
        graph.add(REDUCTIONS[mode], node.inputs, node.outputs[0], axes=[axis])


def _dimshuffle(graph: Graph, node: Any) -> None:
    pattern = list(node.params["pattern"])
    if sorted(pattern) != list(range(node.params["ndim"])):
        raise UnsupportedOperator(node.type, pattern=pattern)
    graph.add("Transpose", node.inputs, node.outputs[0], perm=pattern)


def _subtensor(graph: Graph, node: Any) -> None:
    """Slice each axis. An index removes its axis, except for the last remaining one."""
    index_inputs = iter(node.inputs[1:])
    columns: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])  # starts, ends, axes, steps
    removed_axes: list[int] = []
    for item in node.params:
        present = [name for name in ("begin", "end", "step", "idx") if item[name]]
        values = {name: int(constant_value(node, next(index_inputs)).reshape(-1)[0]) for name in present}
        step = values.get("step", 1)
        if "idx" in values:
            start, end = values["idx"], values["idx"] + 1 or FAR
            removed_axes.append(item["axis"])
        else:
            start = values.get("begin", 0 if step > 0 else FAR)
            end = values.get("end", FAR if step > 0 else -FAR)
        for column, number in zip(columns, (start, end, item["axis"], step), strict=True):
            column.append(number)
    rank = len(node.inputs[0].shape)
    removed_axes = removed_axes if len(removed_axes) < rank else removed_axes[1:]
    inputs = [node.inputs[0], *(graph.longs(*column) for column in columns)]
    slice_name = graph.add("Slice", inputs, None if removed_axes else node.outputs[0])
    if removed_axes:
        graph.add("Squeeze", [slice_name, graph.longs(*removed_axes)], node.outputs[0])


def _gather(graph: Graph, node: Any) -> None:
    if len(node.params) != 1 or not node.params[0]["idx"]:
        raise UnsupportedOperator(node.type, axes=len(node.params))
    graph.add("Gather", node.inputs, node.outputs[0], axis=node.params[0]["axis"])


def _concat(graph: Graph, node: Any) -> None:
    graph.add("Concat", node.inputs, node.outputs[0], axis=node.params["axis"])


def _cast(graph: Graph, node: Any) -> None:
    output = node.outputs[0]
    graph.add("Cast", node.inputs, output, to=graph.helper.np_dtype_to_tensor_dtype(graph.np.dtype(output.dtype)))


def _axes(graph: Graph, node: Any) -> None:
    """Remove or insert axes of size 1, one after the other."""
    name: Any = node.inputs[0]
    steps = node.params["desc"]
    for i, step in enumerate(steps):
        kind = "Squeeze" if step["method"] else "Unsqueeze"
        output = node.outputs[0] if i == len(steps) - 1 else None
        name = graph.add(kind, [name, graph.longs(step["axisnum"])], output)


def _identity(graph: Graph, node: Any) -> None:
    graph.add("Identity", node.inputs, node.outputs[0])


def _constant(graph: Graph, node: Any) -> None:
    graph.weight(constant_value(node, node.outputs[0]), graph.name(node.outputs[0]))


OPERATORS: dict[str, Callable[[Graph, Any], object]] = {
    **dict.fromkeys(CONSTANTS, _constant),
    INPUT: lambda graph, node: graph.name(node.outputs[0]),
    "AxisAddRemove": _axes,
    "BatchNormForward": _batch_norm,
    "BatchedMatrixMul": _matrix_mul,
    "Broadcast": _broadcast,
    "Concat": _concat,
    "ConvBiasForward": _conv_bias,
    "Dimshuffle": _dimshuffle,
    "Elemwise": _elemwise,
    "GetVarShape": _shape,
    "Identity": _identity,
    "IndexingMultiAxisVec": _gather,
    "MatrixMul": _matrix_mul,
    "PoolingForward": _pooling,
    "Reduce": _reduce,
    "Reshape": _reshape,
    "Subtensor": _subtensor,
    "TypeCvt": _cast,
    "ConvolutionForward": lambda graph, node: _convolution(graph, node, (), node.outputs[0]),
}


def _translate(path: Path) -> tuple[Graph, list[Any], list[Any], list[str]]:
    """Return the ONNX graph, the values of its inputs and outputs, and everything that is not supported."""
    tools: Any = importlib.import_module("megengine.utils.comp_graph_tools")
    outputs = megengine.read(path).output_vars_list
    graph, inputs, unfit = Graph(), list[Any](), dict[str, None]()
    for operator in tools.get_oprs_seq(outputs, prune_reshape=False, prune_immtensor=False):
        params = json.loads(operator.params or "{}")
        node = SimpleNamespace(type=str(operator.type), inputs=operator.inputs, outputs=operator.outputs, params=params)
        inputs += node.outputs if node.type == INPUT else []
        try:
            OPERATORS.get(node.type, _unknown)(graph, node)
        except UnsupportedOperator as error:
            unfit[str(error)] = None
    return graph, inputs, outputs, list(unfit)


def _unknown(graph: Graph, node: Any) -> None:
    raise UnsupportedOperator(node.type)


def unsuitable_reason(path: Path) -> str:
    """Return the operators that are not supported, "" if all are supported."""
    unfit = _translate(path)[3]
    return msg("converters.unsupported_operators", f"it has unsupported operators: {', '.join(unfit)}") if unfit else ""


def convert(model: Path, target: Path, options: dict[str, str], rows: Rows | None) -> None:
    """Convert operator by operator, and check the result by running both models.

    A first dimension that all inputs share stays open.
    """
    graph, inputs, outputs, _ = _translate(model)
    shared = len({tuple(one.shape)[:1] for one in inputs}) == 1

    def value(var: Any, dims: list[Any]) -> Any:
        kind = graph.helper.np_dtype_to_tensor_dtype(graph.np.dtype(var.dtype))
        return graph.helper.make_tensor_value_info(graph.name(var), kind, dims)

    sizes = [["batch" if shared and not i else int(size) for i, size in enumerate(one.shape)] for one in inputs]
    graph_inputs = [value(one, dims) for one, dims in zip(inputs, sizes, strict=True)]
    graph_outputs = [value(one, [None] * len(one.shape)) for one in outputs]  # they follow the inputs
    graph_proto = graph.helper.make_graph(graph.nodes, model.stem, graph_inputs, graph_outputs, graph.weights)
    opsets = [graph.helper.make_opsetid("", OPSET)]
    result = graph.helper.make_model(graph_proto, opset_imports=opsets, ir_version=8, producer_name="visualprof")
    _compare(model, result, graph, inputs)
    onnx.write(result, target)


def _compare(model: Path, result: Any, graph: Graph, inputs: Sequence[Any]) -> None:
    """Run both models on random inputs of the sizes in the file.

    Raises:
        TaskFailure: The outputs differ.
    """
    np, rng = graph.np, graph.np.random.default_rng(0)
    feeds = {
        var.name: rng.standard_normal(var.shape).astype(var.dtype)
        if np.dtype(var.dtype).kind == "f"
        else np.zeros(var.shape, var.dtype)  # row numbers: 0 is always valid
        for var in inputs
    }
    evaluator: Any = importlib.import_module("onnx.reference").ReferenceEvaluator(result)
    outputs = evaluator.run(None, {graph.name(var): feeds[var.name] for var in inputs})
    for ours, theirs in zip(outputs, megengine.run(model, feeds), strict=True):
        worst = np.abs(ours.astype("float64") - theirs).max() / max(float(np.abs(theirs).max()), 1e-30)
        if ours.shape != theirs.shape or not worst <= LARGEST_ERROR:
            error = msg(
                "converters.made_model_gives_other",
                f"the converted model differs from MegEngine by an error of {worst:.2g}",
            )
            raise TaskFailure("model_error", error)


CONVERTER = Converter(
    name="mge_onnx",
    title=msg("converters.megengine_mge_onnx", "MegEngine .mge as ONNX"),
    takes="megengine",
    makes="onnx",
    needs={"megengine": "megengine", "onnx": "onnx"},
    convert=convert,
    unsuitable_reason=unsuitable_reason,
)
