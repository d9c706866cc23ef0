"""Operations and bytes of a call by operator: one table row per operator, one function per family.

Counted are the operations that the mathematics requires; a multiply-add counts as 2. Bytes are those of
each tensor that is read or written, counted once. Matrix products, convolutions and attention are
counted as torch's FlopCounterMode does, which counts nothing else. Source: docs/views/roofline.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from visualprof.views.measure.launches.operator_call import NotRecorded, OperatorCall, Tensor
from visualprof.views.measure.work.call_work import CallWork, Family, Formula, total_bytes


def _matrix_product(first: int) -> Formula:
    """Return the formula of (..., m, k) times (..., k, n), or (k) for a vector, as inputs `first` and `first` + 1.

    An input before them is added.
    """

    def work(call: OperatorCall) -> CallWork:
        left, right = call.tensor(first), call.tensor(first + 1)
        depth = right.shape[-2:][0]
        if left.shape[-1] != depth:
            raise NotRecorded
        out = left._replace(shape=(*left.shape[:-1], *right.shape[-2:][1:]))
        if call.name == "aten::_scaled_mm":
            out = out._replace(size={5: 2, 6: 4, 15: 2}[call.value(6)])
        elif call.name == "aten::_int_mm":
            out = out._replace(size=4)
        addends = [call.tensor(0)] if first else []
        return CallWork("product", 2.0 * out.elements * depth, total_bytes(left, right, out, *addends), left.type)

    return work


class ConvolutionArgs(NamedTuple):
    """Positions of a convolution's arguments, -1 for arguments that the operator does not have."""

    stride: int
    padding: int
    dilation: int
    transposed: int = -1
    output_padding: int = -1


def _output_sides(call: OperatorCall, data: Tensor, weight: Tensor, positions: ConvolutionArgs) -> tuple[int, ...]:
    """Return the spatial dimensions of a convolution's output."""
    count = len(data.shape) - 2
    stride, padding, dilation = (call.numbers_per_side(position, count) for position in positions[:3])
    sides = zip(data.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    if positions.transposed < 0 or not call.value(positions.transposed):
        return tuple(
            (size + 2 * pad - dilate * (kernel - 1) - 1) // step + 1 for size, kernel, step, pad, dilate in sides
        )
    extra = call.numbers_per_side(positions.output_padding, count)
    transposed = ((size - 1) * step - 2 * pad + dilate * (kernel - 1) + 1 for size, kernel, step, pad, dilate in sides)
    return tuple(size + added for size, added in zip(transposed, extra, strict=True))


def _convolution(positions: ConvolutionArgs) -> Formula:
    """Return the formula of a convolution; for groups, the weight's second dimension is that of one group."""

    def work(call: OperatorCall) -> CallWork:
        data, weight = call.tensor(0), call.tensor(1, len(call.tensor(0).shape))
        is_transposed = positions.transposed >= 0 and bool(call.value(positions.transposed))
        sides = call.outputs[0].shape[2:] if call.outputs else _output_sides(call, data, weight, positions)
        channels = weight.shape[1] * call.numbers(positions.output_padding + 1)[0] if is_transposed else weight.shape[0]
        out = data._replace(shape=(data.shape[0], channels, *sides))
        flops = 2.0 * data.shape[0] * math.prod(data.shape[2:] if is_transposed else sides) * weight.elements
        return CallWork("convolution", flops, total_bytes(*call.tensors(), out), data.type)

    return work


def _convolution_backward(call: OperatorCall) -> CallWork:
    """Return the work of a backward convolution: that of the forward for each requested gradient."""
    grad, data, weight = (call.tensor(position) for position in range(3))
    wants_data, wants_weight = call.value(10)[:2]
    moved = [grad, *([weight, data] if wants_data else []), *([data, weight] if wants_weight else [])]
    return CallWork(
        "convolution",
        (wants_data + wants_weight) * _forward_flops(grad, data, weight, bool(call.value(7))),
        total_bytes(*moved),
        data.type,
    )


def _single_gradient(call: OperatorCall) -> CallWork:
    """Return the work of one of the two gradients in torch 1.9, which has the three tensors of its parent operator."""
    data, grad, weight = (call.tensor(position) for position in range(3))
    return CallWork(
        "convolution",
        _forward_flops(grad, data, weight, "transpose" in call.name),
        total_bytes(data, grad, weight),
        data.type,
    )


def _forward_flops(out: Tensor, data: Tensor, weight: Tensor, is_transposed: bool) -> float:
    """Return the operations of a forward convolution."""
    return 2.0 * data.shape[0] * math.prod((data if is_transposed else out).shape[2:]) * weight.elements


def _attention(first: int, products: tuple[int, int], heads_first: bool = True) -> Formula:
    """Return the formula of attention with query, key and value at some positions; masks do not reduce or add work.

    Args:
        first: Position of the query.
        products: Number of matrix products over the query's width and over the value's width;
            backward recomputes the scores: 3 and 2.
        heads_first: Whether the heads are before the sequence in the shapes.
    """

    def work(call: OperatorCall) -> CallWork:
        query, key, value = (call.tensor(first + offset, 4) for offset in range(3))
        sequence_axis, head_axis = (2, 1) if heads_first else (1, 2)
        scores = query.shape[0] * query.shape[head_axis] * query.shape[sequence_axis] * key.shape[sequence_axis]
        flops = 2.0 * scores * (products[0] * query.shape[3] + products[1] * value.shape[3])
        out = query._replace(shape=(*query.shape[:3], value.shape[3]))
        moved = (query, key, value, out) if not first else (query, key, value, out) * 2
        return CallWork("attention", flops, total_bytes(*moved), query.type)

    return work


def _per_value(family: Family, flops: int, reads: tuple[int, ...] = (), writes: int = 0) -> Formula:
    """Return the formula of a number of operations per value of the input `writes`, which is also written.

    An empty `reads` reads all tensors.
    """

    def work(call: OperatorCall) -> CallWork:
        output = call.tensor(writes)
        inputs = [call.tensor(position) for position in reads] if reads else call.tensors()
        return CallWork(family, float(flops * output.elements), total_bytes(*inputs, output), output.type)

    return work


def _norm_backward(weight: int, bias: int | None, mask: int) -> Formula:
    """Return the formula of the backward of a normalization, which writes the gradients of input, weight and bias.

    Args:
        weight: Position of the weight.
        bias: Position of the bias; -1 if it is not an argument, `None` if the layer has no bias.
        mask: Position of which of the gradients are requested; -1 if always all.
    """

    def work(call: OperatorCall) -> CallWork:
        data = call.tensor(0)
        scale = call.inputs[weight] if weight < len(call.inputs) else None
        shift = scale if bias == -1 else call.inputs[bias] if bias and bias < len(call.inputs) else None
        wanted = call.flags(mask) or (True,) * 3  # not recorded, or no argument: training needs all
        gradients = (data, scale, *([shift] if bias is not None else []))
        written = [tensor for tensor, is_wanted in zip(gradients, wanted, strict=False) if is_wanted]
        moved = [*call.tensors(), *(tensor for tensor in written if isinstance(tensor, Tensor))]
        return CallWork("normalization", 13.0 * data.elements, total_bytes(*moved), data.type)

    return work


def _elementwise(inputs: int, result: str = "") -> Formula:
    """Return the formula of one operation per output value; the output shape is the broadcast of the inputs.

    The output type is that of the widest input with dimensions: a number that torch wraps (`x *
    0.9`, a double) does not widen it.
    """

    def work(call: OperatorCall) -> CallWork:
        operands = [operand for operand in call.inputs[:inputs] if isinstance(operand, Tensor)]
        floating = ("fp", "bf", "complex")
        widest = max(
            operands,
            key=lambda operand: (
                operand.type.startswith(floating),
                bool(operand.shape),
                operand.size,
                operand.elements,
            ),
        )
        out = widest._replace(shape=_broadcast([operand.shape for operand in operands]))
        if result == "bool":
            out = out._replace(size=1)
        return CallWork("elementwise", float(out.elements), total_bytes(*operands, out), widest.type)

    return work


def _dropout(call: OperatorCall) -> CallWork:
    """Return the work of dropout, which writes a value and a boolean per input value."""
    data = call.tensor(0)
    return CallWork("elementwise", float(data.elements), 2 * data.bytes + data.elements, data.type)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the broadcast of some shapes."""
    dimensions = max(map(len, shapes))
    padded = [(1,) * (dimensions - len(shape)) + shape for shape in shapes]
    return tuple(0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True))


def _reduction(dim: int = 1) -> Formula:
    """Return the formula of one operation per input value.

    Args:
        dim: Position of the reduced dimensions; all dimensions if the call does not name any.
    """

    def work(call: OperatorCall) -> CallWork:
        data = call.tensor(0)
        if len(call.tensors()) == len(call.inputs) == 2:
            return _elementwise(2)(call)  # the larger of two
        reduces_all = len(call.inputs) <= 2 or call.value(dim) in (None, [])
        reduced = range(len(data.shape)) if reduces_all else call.numbers(dim)
        outputs = data.elements // max(math.prod(data.shape[axis] for axis in reduced), 1)
        return CallWork("reduction", float(data.elements), data.bytes + outputs * data.size, data.type)

    return work


def _lookup(table: int, index: int) -> Formula:
    """Return the formula of reading rows of a table by index and writing them."""

    def work(call: OperatorCall) -> CallWork:
        entries, indices = call.tensor(table), call.tensor(index)
        width = 1 if "gather" in call.name else math.prod(entries.shape[1:])
        if call.name == "aten::index_select":
            width = entries.elements // max(entries.shape[call.numbers(1)[0]], 1)
        return CallWork("lookup", 0.0, indices.bytes + 2 * indices.elements * width * entries.size, entries.type)

    return work


def _lookup_backward(call: OperatorCall) -> CallWork:
    """Return the work of adding gradients to the rows of a table."""
    grad, indices = call.tensor(0), call.tensor(1)
    table = grad._replace(shape=(*call.numbers(2), grad.shape[-1]))
    return CallWork("lookup", float(grad.elements), total_bytes(grad, indices, table), grad.type)


def _copy(*positions: int) -> Formula:
    """Return the formula of copying, which moves the inputs at some positions."""

    def work(call: OperatorCall) -> CallWork:
        tensors = [call.tensor(position) for position in positions]
        return CallWork("copy", 0.0, total_bytes(*tensors), tensors[0].type)

    return work


def _onnx_matrix_product(call: OperatorCall) -> CallWork:
    """Return the work of a product whose first factor is recorded; the shape of the second one follows.

    For a constant second factor, the profile contains neither the shape nor the bytes, because ONNX Runtime
    packs it beforehand. Other inputs, such as the bias of a Gemm, are recorded. If one of them may be the second
    factor or the bias, the bytes are unknown.
    """
    left, *others = call.tensors()
    out = call.outputs[0]
    gemm = call.name.endswith("Gemm")
    if out.shape[0] not in left.shape if gemm else left.shape[:-1] != out.shape[:-1]:
        raise NotRecorded
    depth = left.elements // out.shape[0] if gemm else left.shape[-1]
    factor = left._replace(shape=(depth, out.shape[-1]))
    may_be_factor = [other for other in others if not gemm or sorted(other.shape) == sorted(factor.shape)]
    moved = total_bytes(left, *others, out) + (0.0 if may_be_factor else factor.bytes)
    is_ambiguous = gemm and len(others) == 1 and bool(may_be_factor) and _is_addend(others[0], out)
    return CallWork("product", 2.0 * out.elements * depth, math.nan if is_ambiguous else moved, out.type)


def _is_addend(tensor: Tensor, out: Tensor) -> bool:
    """Return whether a tensor can be added to another one without changing its shape."""
    return _broadcast([tensor.shape, out.shape]) == out.shape and set(tensor.shape) <= {1, *out.shape}


def _onnx(family: Family, per_value: Callable[[OperatorCall], int]) -> Formula:
    """Return the formula of a node of an ONNX graph, whose outputs and bytes are recorded.

    Args:
        family: Family of the operator.
        per_value: Operations per output value.
    """

    def work(call: OperatorCall) -> CallWork:
        out = call.outputs[0]
        return CallWork(family, float(out.elements * per_value(call)), call.moved_bytes, out.type)

    return work


_FULL = ConvolutionArgs(3, 4, 5, 6, 7)
_UNARY = """relu relu6 gelu silu sigmoid tanh exp log sqrt rsqrt reciprocal neg abs sin cos erf clamp clamp_min
    clamp_max leaky_relu elu hardtanh hardswish hardsigmoid mish softplus square sign floor ceil round trunc
    bitwise_not log2 log1p expm1 tril triu cumsum nan_to_num sgn"""
_BINARY = """add sub rsub mul div pow maximum minimum fmod remainder atan2 masked_fill floor_divide bitwise_and
    bitwise_or threshold_backward gelu_backward silu_backward tanh_backward sigmoid_backward leaky_relu_backward
    elu_backward hardtanh_backward hardswish_backward hardsigmoid_backward native_dropout_backward mish_backward
    softplus_backward"""
_TERNARY = "where addcmul addcdiv lerp"
_COMPARISONS = "eq ne lt le gt ge logical_and logical_or logical_xor"
_REDUCTIONS = "sum mean amax amin max min prod argmax argmin logsumexp var std any all"
_NORMS = "native_batch_norm cudnn_batch_norm miopen_batch_norm native_layer_norm native_group_norm _fused_rms_norm"
# Positions of the weight, of the bias (-1: not an argument, None: there is none), and of the mask (-1: no argument).
_NORM_GRADIENTS = {
    "native_layer_norm": (5, 6, 7),
    "native_group_norm": (4, -1, 9),
    "native_batch_norm": (2, -1, 9),
    "cudnn_batch_norm": (2, -1, -1),
    "miopen_batch_norm": (2, -1, -1),
    "_fused_rms_norm": (4, None, 5),
}
_ONNX_VALUES = """Relu Add Mul Sub Div Sigmoid Tanh Clip Gelu FastGelu BiasGelu QuickGelu Erf Sqrt Pow Exp Log Neg Abs
    LeakyRelu HardSwish HardSigmoid Elu Where Min Max Sum"""
_ONNX_NORMS = "LayerNormalization SkipLayerNormalization SimplifiedLayerNormalization SkipSimplifiedLayerNormalization"

MODEL_FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::mv", "aten::_int_mm", "aten::_scaled_mm"), _matrix_product(0)),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm", "aten::addmv", "aten::_addmm_activation"), _matrix_product(1)),
    **dict.fromkeys(("aten::convolution", "aten::_convolution", "aten::convolution_overrideable"), _convolution(_FULL)),
    "aten::cudnn_convolution": _convolution(ConvolutionArgs(3, 2, 4)),
    "aten::cudnn_convolution_relu": _convolution(ConvolutionArgs(3, 4, 5)),
    **dict.fromkeys(("aten::mkldnn_convolution", "aten::miopen_convolution"), _convolution(ConvolutionArgs(4, 3, 5))),
    "aten::convolution_backward": _convolution_backward,
    **{
        f"aten::cudnn_convolution_{kind}": _single_gradient
        for kind in (
            "backward_input",
            "backward_weight",
            "transpose_backward_input",
            "transpose_backward_weight",
        )
    },
    **{
        f"aten::_scaled_dot_product_{kind}": _attention(0, (1, 1))
        for kind in ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")
    },
    **{
        f"aten::_scaled_dot_product_{kind}_backward": _attention(1, (3, 2))
        for kind in ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")
    },
    **{f"aten::_{kind}_attention_forward": _attention(0, (1, 1), False) for kind in ("flash", "efficient")},
    **{f"aten::_{kind}_attention_backward": _attention(1, (3, 2), False) for kind in ("flash", "efficient")},
    **dict.fromkeys(
        ("flash_attn::_flash_attn_forward", "aiter::fmha_v3_fwd", "aiter::mha_fwd"), _attention(0, (1, 1), False)
    ),
    "flash_attn::_flash_attn_backward": _attention(1, (3, 2), False),
    **dict.fromkeys(("MatMul", "FusedMatMul", "Gemm", "FusedGemm"), _onnx_matrix_product),
    **dict.fromkeys(("Conv", "FusedConv"), _onnx("convolution", lambda call: 2 * math.prod(call.tensor(1).shape[1:]))),
}
OTHER_FORMULAS: dict[str, Formula] = {
    **{f"aten::{name}": _per_value("normalization", 8) for name in _NORMS.split()},
    **{f"aten::{name}_backward": _norm_backward(*args) for name, args in _NORM_GRADIENTS.items()},
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax"), _per_value("softmax", 5, (0,))),
    **dict.fromkeys(
        ("aten::_softmax_backward_data", "aten::_log_softmax_backward_data"), _per_value("softmax", 4, (0, 1))
    ),
    **{f"aten::{name}": _elementwise(1) for name in _UNARY.split()},
    **{f"aten::{name}": _elementwise(2) for name in _BINARY.split()},
    **{f"aten::{name}": _elementwise(3) for name in _TERNARY.split()},
    **{f"aten::{name}": _elementwise(2, "bool") for name in _COMPARISONS.split()},
    **dict.fromkeys(("aten::isnan", "aten::isinf", "aten::logical_not"), _elementwise(1, "bool")),
    "aten::native_dropout": _dropout,
    **{f"aten::{name}": _reduction() for name in _REDUCTIONS.split()},
    **dict.fromkeys(("aten::norm", "aten::linalg_vector_norm"), _reduction(2)),
    "aten::embedding": _lookup(0, 1),
    **dict.fromkeys(("aten::index_select", "aten::gather"), _lookup(0, 2)),
    "aten::embedding_dense_backward": _lookup_backward,
    "aten::copy_": _copy(0, 1),
    **dict.fromkeys(("aten::fill_", "aten::zero_"), _copy(0)),
    **dict.fromkeys(_ONNX_NORMS.split(), _onnx("normalization", lambda _: 8)),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _onnx("softmax", lambda _: 5)),
    **dict.fromkeys(_ONNX_VALUES.split(), _onnx("elementwise", lambda _: 1)),
}
FORMULAS: dict[str, Formula] = {**MODEL_FORMULAS, **OTHER_FORMULAS}
