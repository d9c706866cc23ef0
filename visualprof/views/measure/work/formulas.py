"""Operations and bytes of a call by its operator: one row an operator, one function a family.

Operations are those that the mathematics needs, 2 a multiply-add; bytes are those of each tensor that is read or
written, once. Products, convolutions and attention as torch's FlopCounterMode, docs/views.md#roofline, which counts
nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

from visualprof.views.measure.operator_call import NotRecorded, OperatorCall, Tensor

Family = Literal[
    "product", "convolution", "attention", "recurrent", "normalization", "softmax", "elementwise", "reduction",
    "lookup", "copy", "recorded", "unknown",
]  # fmt: skip
MODEL_FAMILIES: tuple[Family, ...] = (
    "product",
    "convolution",
    "attention",
    "recurrent",
    "recorded",
)  # what a model's FLOPs are


class CallWork(NamedTuple):
    """What a call does. flops, bytes: NaN where unknown. type: of the elements that it works on."""

    family: Family
    flops: float
    bytes: float
    type: str


UNKNOWN_WORK = CallWork("unknown", math.nan, math.nan, "")
Formula = Callable[[OperatorCall], CallWork]


def total_bytes(*tensors: Tensor) -> float:
    """What some tensors take; NaN where the type of one is unknown."""
    return float(sum(tensor.bytes for tensor in tensors))


def _product(first: int) -> Formula:
    """(..., m, k) times (..., k, n), or (k) for a vector, at two places; what stands before is added."""

    def work(call: OperatorCall) -> CallWork:
        a, b = call.tensor(first), call.tensor(first + 1)
        inner = b.shape[-2:][0]
        if a.shape[-1] != inner:
            raise NotRecorded
        out = a._replace(shape=(*a.shape[:-1], *b.shape[-2:][1:]))
        if call.name == "aten::_scaled_mm":
            out = out._replace(size={5: 2, 6: 4, 15: 2}[call.value(6)])
        elif call.name == "aten::_int_mm":
            out = out._replace(size=4)
        added = [call.tensor(0)] if first else []
        return CallWork("product", 2.0 * out.elements * inner, total_bytes(a, b, out, *added), a.type)

    return work


class ConvolutionArgs(NamedTuple):
    """Places of what a convolution is told, -1 for what its operator has not."""

    stride: int
    padding: int
    dilation: int
    transposed: int = -1
    more: int = -1  # output_padding


def _sides(call: OperatorCall, x: Tensor, weight: Tensor, at: ConvolutionArgs) -> tuple[int, ...]:
    """The spatial sides of what a convolution gives."""
    count = len(x.shape) - 2
    stride, padding, dilation = (call.numbers_per_side(place, count) for place in at[:3])
    sides = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    if at.transposed < 0 or not call.value(at.transposed):
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sides)
    more = call.numbers_per_side(at.more, count)
    grown = ((n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in sides)
    return tuple(n + m for n, m in zip(grown, more, strict=True))


def _convolution(at: ConvolutionArgs) -> Formula:
    """A convolution, of groups, too: the weight's second side is that of one group."""

    def work(call: OperatorCall) -> CallWork:
        x, weight = call.tensor(0), call.tensor(1, len(call.tensor(0).shape))
        turned = at.transposed >= 0 and bool(call.value(at.transposed))
        sides = call.outputs[0].shape[2:] if call.outputs else _sides(call, x, weight, at)
        channels = weight.shape[1] * call.numbers(at.more + 1)[0] if turned else weight.shape[0]
        out = x._replace(shape=(x.shape[0], channels, *sides))
        flops = 2.0 * x.shape[0] * math.prod(x.shape[2:] if turned else sides) * weight.elements
        return CallWork("convolution", flops, total_bytes(*call.tensors(), out), x.type)

    return work


def _convolution_backward(call: OperatorCall) -> CallWork:
    """As much as the forward for each of the two gradients that are wanted."""
    grad, x, weight = (call.tensor(i) for i in range(3))
    of_x, of_weight = call.value(10)[:2]
    moved = [grad, *([weight, x] if of_x else []), *([x, weight] if of_weight else [])]
    return CallWork(
        "convolution", (of_x + of_weight) * _forward(grad, x, weight, bool(call.value(7))), total_bytes(*moved), x.type
    )


def _one_gradient(call: OperatorCall) -> CallWork:
    """One of the two, of torch 1.9: its three tensors are those of the operator around it."""
    x, grad, weight = (call.tensor(i) for i in range(3))
    return CallWork(
        "convolution", _forward(grad, x, weight, "transpose" in call.name), total_bytes(x, grad, weight), x.type
    )


def _forward(out: Tensor, x: Tensor, weight: Tensor, turned: bool) -> float:
    return 2.0 * x.shape[0] * math.prod((x if turned else out).shape[2:]) * weight.elements


def _attention(first: int, products: tuple[int, int], heads_first: bool = True) -> Formula:
    """Attention of a query, a key and a value at some places; a mask takes nothing off, and nothing is added for it.

    products: of the query's width, of the value's. Backward works the scores out again: 3 and 2.
    """

    def work(call: OperatorCall) -> CallWork:
        query, key, value = (call.tensor(first + i, 4) for i in range(3))
        long, heads = (2, 1) if heads_first else (1, 2)
        scores = query.shape[0] * query.shape[heads] * query.shape[long] * key.shape[long]
        flops = 2.0 * scores * (products[0] * query.shape[3] + products[1] * value.shape[3])
        out = query._replace(shape=(*query.shape[:3], value.shape[3]))
        moved = (query, key, value, out) if not first else (query, key, value, out) * 2
        return CallWork("attention", flops, total_bytes(*moved), query.type)

    return work


def _recurrent(call: OperatorCall) -> CallWork:
    """Layers of a recurrent network: each matrix once a step of time and row of the batch."""
    x = call.tensor(0, 3)
    given = call.inputs[1] if isinstance(call.inputs[1], list) else call.tensors()[1:5]
    flops = 2.0 * math.prod(x.shape[:-1]) * sum(one.elements for one in given if len(one.shape) == 2)
    return CallWork("recurrent", flops, math.nan, x.type)


def _rows(family: Family, flops: int, reads: tuple[int, ...] = (), writes: int = 0) -> Formula:
    """So many operations a value of one of the inputs, which is what is written, too; () reads all."""

    def work(call: OperatorCall) -> CallWork:
        like = call.tensor(writes)
        read = [call.tensor(place) for place in reads] if reads else call.tensors()
        return CallWork(family, float(flops * like.elements), total_bytes(*read, like), like.type)

    return work


def _elementwise(inputs: int, result: str = "") -> Formula:
    """One operation a value of what comes out, which is as large as the inputs together are.

    Its type is that of the widest with sides: a number that torch wraps (`x * 0.9`, a double) makes nothing wider.
    """

    def work(call: OperatorCall) -> CallWork:
        read = [one for one in call.inputs[:inputs] if isinstance(one, Tensor)]
        floating = ("fp", "bf", "complex")
        widest = max(read, key=lambda one: (one.type.startswith(floating), bool(one.shape), one.size, one.elements))
        out = widest._replace(shape=_broadcast([one.shape for one in read]))
        if result == "bool":
            out = out._replace(size=1)
        return CallWork("elementwise", float(out.elements), total_bytes(*read, out), widest.type)

    return work


def _dropout(call: OperatorCall) -> CallWork:
    """A value and a truth value of each that comes in."""
    x = call.tensor(0)
    return CallWork("elementwise", float(x.elements), 2 * x.bytes + x.elements, x.type)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    sides = max(map(len, shapes))
    padded = [(1,) * (sides - len(shape)) + shape for shape in shapes]
    return tuple(0 if 0 in side else max(side) for side in zip(*padded, strict=True))


def _reduction(dim: int = 1) -> Formula:
    """One operation a value of what comes in. dim: place of the sides that go; all of them where it says none."""

    def work(call: OperatorCall) -> CallWork:
        x = call.tensor(0)
        if len(call.tensors()) == len(call.inputs) == 2:
            return _elementwise(2)(call)  # the larger of two
        whole = len(call.inputs) <= 2 or call.value(dim) in (None, [])
        gone = range(len(x.shape)) if whole else call.numbers(dim)
        left = x.elements // max(math.prod(x.shape[d] for d in gone), 1)
        return CallWork("reduction", float(x.elements), x.bytes + left * x.size, x.type)

    return work


def _lookup(table: int, index: int) -> Formula:
    """Rows of a table by their numbers: what is read of it, and the same written."""

    def work(call: OperatorCall) -> CallWork:
        rows, at = call.tensor(table), call.tensor(index)
        width = 1 if "gather" in call.name else math.prod(rows.shape[1:])
        if call.name == "aten::index_select":
            width = rows.elements // max(rows.shape[call.numbers(1)[0]], 1)
        return CallWork("lookup", 0.0, at.bytes + 2 * at.elements * width * rows.size, rows.type)

    return work


def _lookup_backward(call: OperatorCall) -> CallWork:
    grad, at = call.tensor(0), call.tensor(1)
    table = grad._replace(shape=(*call.numbers(2), grad.shape[-1]))
    return CallWork("lookup", float(grad.elements), total_bytes(grad, at, table), grad.type)


def _copy(*moved: int) -> Formula:
    def work(call: OperatorCall) -> CallWork:
        tensors = [call.tensor(place) for place in moved]
        return CallWork("copy", 0.0, total_bytes(*tensors), tensors[0].type)

    return work


def _onnx_product(call: OperatorCall) -> CallWork:
    """A product whose first factor is recorded; the sides of the second follow.

    Of a constant the profile has neither the shape nor, as ONNX Runtime packs it beforehand, the bytes.
    """
    a, out = call.tensor(0), call.outputs[0]
    gemm = call.name.endswith("Gemm")
    if out.shape[0] not in a.shape if gemm else a.shape[:-1] != out.shape[:-1]:
        raise NotRecorded
    inner = a.elements // out.shape[0] if gemm else a.shape[-1]
    factors = call.tensors() if len(call.inputs) > 1 else [a, a._replace(shape=(inner, out.shape[-1]))]
    return CallWork("product", 2.0 * out.elements * inner, total_bytes(*factors, out), out.type)


def _onnx(family: Family, each: Callable[[OperatorCall], int]) -> Formula:
    """A node of an ONNX graph, whose outputs and bytes are recorded. each: operations of a value that comes out."""

    def work(call: OperatorCall) -> CallWork:
        out = call.outputs[0]
        return CallWork(family, float(out.elements * each(call)), call.moved_bytes, out.type)

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
_TRUTH = "eq ne lt le gt ge logical_and logical_or logical_xor"
_REDUCED = "sum mean amax amin max min prod argmax argmin logsumexp var std any all"
_NORMS = "native_batch_norm cudnn_batch_norm miopen_batch_norm native_layer_norm native_group_norm _fused_rms_norm"
_ONNX_VALUES = """Relu Add Mul Sub Div Sigmoid Tanh Clip Gelu FastGelu BiasGelu QuickGelu Erf Sqrt Pow Exp Log Neg Abs
    LeakyRelu HardSwish HardSigmoid Elu Where Min Max Sum"""
_ONNX_NORMS = "LayerNormalization SkipLayerNormalization SimplifiedLayerNormalization SkipSimplifiedLayerNormalization"

FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::mv", "aten::_int_mm", "aten::_scaled_mm"), _product(0)),
    **dict.fromkeys(("aten::addmm", "aten::baddbmm", "aten::addmv", "aten::_addmm_activation"), _product(1)),
    **dict.fromkeys(("aten::convolution", "aten::_convolution", "aten::convolution_overrideable"), _convolution(_FULL)),
    "aten::cudnn_convolution": _convolution(ConvolutionArgs(3, 2, 4)),
    "aten::cudnn_convolution_relu": _convolution(ConvolutionArgs(3, 4, 5)),
    **dict.fromkeys(("aten::mkldnn_convolution", "aten::miopen_convolution"), _convolution(ConvolutionArgs(4, 3, 5))),
    "aten::convolution_backward": _convolution_backward,
    **{
        f"aten::cudnn_convolution_{kind}": _one_gradient
        for kind in (
            "backward_input", "backward_weight", "transpose_backward_input", "transpose_backward_weight",
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
    **dict.fromkeys(("aten::_cudnn_rnn", "aten::miopen_rnn", "aten::mkldnn_rnn_layer"), _recurrent),
    **{f"aten::{name}": _rows("normalization", 8) for name in _NORMS.split()},
    **{f"aten::{name}_backward": _rows("normalization", 13) for name in _NORMS.split()},
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax"), _rows("softmax", 5, (0,))),
    **dict.fromkeys(("aten::_softmax_backward_data", "aten::_log_softmax_backward_data"), _rows("softmax", 4, (0, 1))),
    **{f"aten::{name}": _elementwise(1) for name in _UNARY.split()},
    **{f"aten::{name}": _elementwise(2) for name in _BINARY.split()},
    **{f"aten::{name}": _elementwise(3) for name in _TERNARY.split()},
    **{f"aten::{name}": _elementwise(2, "bool") for name in _TRUTH.split()},
    **dict.fromkeys(("aten::isnan", "aten::isinf", "aten::logical_not"), _elementwise(1, "bool")),
    "aten::native_dropout": _dropout,
    **{f"aten::{name}": _reduction() for name in _REDUCED.split()},
    **dict.fromkeys(("aten::norm", "aten::linalg_vector_norm"), _reduction(2)),
    "aten::embedding": _lookup(0, 1),
    **dict.fromkeys(("aten::index_select", "aten::gather"), _lookup(0, 2)),
    "aten::embedding_dense_backward": _lookup_backward,
    "aten::copy_": _copy(0, 1),
    **dict.fromkeys(("aten::fill_", "aten::zero_"), _copy(0)),
    **dict.fromkeys(("MatMul", "FusedMatMul", "Gemm", "FusedGemm"), _onnx_product),
    **dict.fromkeys(
        ("Conv", "FusedConv"), _onnx("convolution", lambda call: 2 * math.prod(call.tensor(1).shape[1:]))
    ),
    **dict.fromkeys(_ONNX_NORMS.split(), _onnx("normalization", lambda _: 8)),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _onnx("softmax", lambda _: 5)),
    **dict.fromkeys(_ONNX_VALUES.split(), _onnx("elementwise", lambda _: 1)),
}  # fmt: skip
