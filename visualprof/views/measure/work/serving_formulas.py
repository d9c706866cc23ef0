"""Operations and bytes of the operators of inference servers: vLLM, SGLang, AITER, TensorRT-LLM.

Attention works on requests whose lengths no shape contains; they come from the step's annotation
(`OperatorCall.serving_step`). For packed 4-bit values, the operations of a product are those of the
unpacked values. Source: docs/views/roofline.md.
"""

from __future__ import annotations

from visualprof.views.measure.launches.operator_call import NotRecorded, OperatorCall
from visualprof.views.measure.work.call_work import CallWork, Family, Formula, total_bytes
from visualprof.views.measure.work.serving_attention import ATTENTION, OUTPUT_BYTES

PACKED = ("fp4", "uint8", "int32")


def _matrix_product(first: int = 0, out: int = -1, transposed: bool = True, packed: int = 1) -> Formula:
    """Return the formula of (..., m, k) times weights of (n, k), or of (k, n) if they are not transposed.

    Args:
        first: Position of the activations.
        out: Position of the output, -1 if it is not an argument.
        transposed: Whether the weights are transposed.
        packed: Values per element.
    """

    def work(call: OperatorCall) -> CallWork:
        left, weights = call.tensor(first), call.tensor(first + 1)
        depth, columns = (
            (weights.shape[-1], weights.shape[-2]) if transposed else (weights.shape[-2], weights.shape[-1])
        )
        if left.shape[-1] != depth or (packed == 1 and left.type in PACKED):
            raise NotRecorded
        rows = left.elements // max(depth, 1)
        size = call.tensor(out).size if out >= 0 else max(left.size, OUTPUT_BYTES)
        type = "fp4" if packed == 2 else left.type
        return CallWork(
            "product", 2.0 * rows * columns * depth * packed, total_bytes(left, weights) + rows * columns * size, type
        )

    return work


def _packed_weights(call: OperatorCall) -> CallWork:
    """Return the work of activations times packed weights.

    Their rows and columns are recorded as numbers: `size_m, size_n, size_k`.
    """
    activations = call.tensor(0, 2)
    rows, depth = activations.shape
    numbers = [int(value) if value.isdecimal() else -1 for value in call.values]
    sizes = [
        numbers[index + 1]
        for index in range(len(numbers) - 2)
        if (numbers[index], numbers[index + 2]) == activations.shape and numbers[index + 1] > 0
    ]
    if len(sizes) != 1:
        raise NotRecorded
    weights = max(
        (tensor for tensor in call.tensors()[1:] if tensor.type in PACKED), key=lambda tensor: tensor.elements
    )
    return CallWork(
        "product",
        2.0 * rows * depth * sizes[0],
        total_bytes(activations, weights) + rows * sizes[0] * activations.size,
        activations.type,
    )


def _int4_product(call: OperatorCall) -> CallWork:
    """Return the work of `_weight_int4pack_mm`: activations, packed weights, group size, scales (groups, n, 2)."""
    activations, weights, scales = call.tensor(0, 2), call.tensor(1), call.tensor(3, 3)
    columns = scales.shape[1]
    moved_bytes = total_bytes(activations, weights, scales) + activations.shape[0] * columns * activations.size
    return CallWork("product", 2.0 * activations.elements * columns, moved_bytes, activations.type)


def _awq_product(call: OperatorCall) -> CallWork:
    """Return the work of activations times 4-bit weights, 8 per element of (k, n / 8)."""
    activations, weights = call.tensor(0, 2), call.tensor(1, 2)
    if weights.shape[0] != activations.shape[1]:
        raise NotRecorded
    columns = 8 * weights.shape[1]
    return CallWork(
        "product",
        2.0 * activations.elements * columns,
        total_bytes(activations, weights) + activations.shape[0] * columns * activations.size,
        activations.type,
    )


def _mixture_of_experts(tokens: int = 0, up: int = 1, down: int = 2, chosen: int = 3, number: int = -1) -> Formula:
    """Return the formula of a mixture of experts.

    Inputs are x (m, k), up (e, 2n or n, k), down (e, k, n), and the choice (m, chosen) or its width
    as a number.

    The counted weights are those that m tokens with evenly distributed choices use.
    """

    def work(call: OperatorCall) -> CallWork:
        data, up_weights, down_weights = call.tensor(tokens, 2), call.tensor(up, 3), call.tensor(down, 3)
        rows, width = data.shape
        experts, up_rows, up_columns = up_weights.shape
        experts_per_token = call.numbers(number)[0] if number >= 0 else call.tensor(chosen, 2).shape[1]
        hidden = down_weights.shape[2] * (width // up_columns if up_columns else 1)  # packed like the up weights
        if (
            data.type in PACKED
            or down_weights.shape[:2] != (experts, width)
            or width % max(up_columns, 1)
            or up_rows not in (hidden, 2 * hidden)
        ):
            raise NotRecorded
        if not 0 < experts_per_token <= experts:
            raise NotRecorded
        used_experts = experts * (1 - (1 - experts_per_token / experts) ** rows)
        moved_bytes = 2 * data.bytes + used_experts / experts * total_bytes(up_weights, down_weights)
        return CallWork("product", 2.0 * rows * experts_per_token * width * (up_rows + hidden), moved_bytes, data.type)

    return work


def _expert_stage(second: bool) -> Formula:
    """Return the formula of one product of a mixture of experts.

    The first product has tokens (m, k), the second (m, chosen, n).
    """

    def work(call: OperatorCall) -> CallWork:
        data, up, down = call.tensor(0), call.tensor(1, 3), call.tensor(2, 3)
        weights = down if second else up
        out = call.tensor(6, 2 if second else 3)
        experts_per_token = data.shape[1] if second else out.shape[1]
        if (
            data.type in PACKED
            or data.shape[-1] != weights.shape[2]
            or not 0 < experts_per_token <= weights.shape[0]
            or out.shape[0] != data.shape[0]
        ):
            raise NotRecorded
        used_share = 1 - (1 - experts_per_token / weights.shape[0]) ** data.shape[0]
        flops = 2.0 * data.shape[0] * experts_per_token * weights.shape[1] * weights.shape[2]
        return CallWork("product", flops, total_bytes(data, out) + used_share * weights.bytes, data.type)

    return work


def _elementwise_pass(
    family: Family, flops: int, main: int, in_place: tuple[int, ...] = (), returned: bool = False
) -> Formula:
    """Return the formula of a number of operations per value of one tensor.

    Every tensor is moved once, those written in place twice.

    Args:
        family: Family of the operator.
        flops: Operations per value.
        main: Position of the tensor.
        in_place: Positions of tensors that are written in place.
        returned: Whether the output has the size of that tensor and is not an argument.
    """

    def work(call: OperatorCall) -> CallWork:
        data = call.tensor(main)
        written = [call.tensor(position) for position in in_place] + ([data] if returned else [])
        return CallWork(family, float(flops * data.elements), total_bytes(*call.tensors(), *written), data.type)

    return work


def _rotary(call: OperatorCall) -> CallWork:
    """Return the work of rotating queries and keys in place: 3 operations per value, and one table row per token."""
    positions, query, key, table = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(4, 2)
    table_bytes = positions.elements * table.shape[1] * table.size
    flops = 3.0 * (query.elements + key.elements)
    return CallWork("elementwise", flops, positions.bytes + table_bytes + 2 * total_bytes(query, key), query.type)


def _cache_write(*cache_positions: int) -> Formula:
    """Return the formula of writing keys and values to a cache.

    They are read in their own type and written in that of the caches at some positions.
    """

    def work(call: OperatorCall) -> CallWork:
        sources = [call.tensor(0), call.tensor(1)]
        sizes = [call.tensor(position).size for position in cache_positions] * (2 // len(cache_positions))
        moved_bytes = total_bytes(*sources) + sum(
            source.elements * size for source, size in zip(sources, sizes, strict=True)
        )
        return CallWork("copy", 0.0, moved_bytes, sources[0].type)

    return work


_FP8_BLOCKS = """gemm_a8w8_blockscale_ck gemm_a8w8_blockscale_cktile gemm_a8w8_blockscale_bpreshuffle_ck
    gemm_a8w8_blockscale_bpreshuffle_cktile gemm_a8w8_ck gemm_a8w8_bpreshuffle gemm_a8w8_bpreshuffle_ck
    gemm_a8w8_blockscale _gemm_a8w8_blockscale_bpreshuffle_asm flatmm_a8w8_blockscale_asm gemm_a8w8_asm gemm_a8w8"""
_NAMESPACES = ("_C", "aiter", "sgl_kernel")

WRAPPERS = frozenset(
    ("vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16")
)  # dispatch to torch's product or to one of their own

FORMULAS: dict[str, Formula] = {
    **ATTENTION,
    # products
    **dict.fromkeys(
        ("vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16", "aten::_weight_int8pack_mm"), _matrix_product()
    ),
    **{f"aiter::{name}": _matrix_product() for name in _FP8_BLOCKS.split()},
    **dict.fromkeys(
        (
            "vllm::w8a8_triton_block_scaled_mm_func",
            "vllm::padded_cutlass",
            "vllm::rocm_aiter_gemm_a8w8_blockscale",
            "vllm::rocm_aiter_triton_gemm_a8w8_blockscale",
        ),
        _matrix_product(),
    ),
    **dict.fromkeys(
        ("_C::cutlass_scaled_mm", "_C::cutlass_scaled_mm_azp"), _matrix_product(1, out=0, transposed=False)
    ),
    **dict.fromkeys(
        ("sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm", "sgl_kernel::fp8_blockwise_scaled_mm"),
        _matrix_product(transposed=False),
    ),
    **dict.fromkeys(
        ("_C::cutlass_scaled_fp4_mm", "sgl_kernel::cutlass_scaled_fp4_mm"), _matrix_product(1, out=0, packed=2)
    ),
    **dict.fromkeys(("aiter::gemm_a4w4_asm", "aiter::gemm_a4w4_blockscale"), _matrix_product(packed=2)),
    **dict.fromkeys(
        (
            "_C::gptq_marlin_gemm",
            "_C::marlin_gemm",
            "_C::awq_marlin_gemm",
            "_C::fp8_marlin_gemm",
            "sgl_kernel::gptq_marlin_gemm",
        ),
        _packed_weights,
    ),
    "aten::_weight_int4pack_mm": _int4_product,
    **dict.fromkeys(("_C::awq_gemm", "sgl_kernel::awq_gemm"), _awq_product),
    # mixtures of experts
    **dict.fromkeys(
        (
            "vllm::inplace_fused_experts",
            "vllm::outplace_fused_experts",
            "vllm::rocm_aiter_fused_moe",
            "sglang::inplace_fused_experts",
            "sglang::outplace_fused_experts",
            "aiter::fused_moe",
        ),
        _mixture_of_experts(),
    ),
    "trtllm::fused_moe": _mixture_of_experts(0, 3, 5, 1),
    **dict.fromkeys(("aiter::fmoe_fp8_blockscale_g1u1", "aiter::fmoe_g1u1"), _mixture_of_experts(1, 2, 3, number=8)),
    "aiter::ck_moe_stage1": _expert_stage(second=False),
    "aiter::ck_moe_stage2": _expert_stage(second=True),
    # normalization: `out` first, or none
    **dict.fromkeys(
        ("_C::rms_norm", "aiter::rmsnorm", "sgl_kernel::rmsnorm", "sgl_kernel::gemma_rmsnorm"),
        _elementwise_pass("normalization", 8, 1),
    ),
    **dict.fromkeys(
        ("aiter::rms_norm", "aiter::rmsnorm2d_fwd", "aiter::rmsnorm2d_fwd_ck", "vllm::rocm_aiter_rms_norm"),
        _elementwise_pass("normalization", 8, 0, returned=True),
    ),
    **dict.fromkeys(
        ("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", "sgl_kernel::gemma_fused_add_rmsnorm"),
        _elementwise_pass("normalization", 9, 0, in_place=(0, 1)),
    ),
    **dict.fromkeys(
        ("aiter::rmsnorm2d_fwd_with_add_ck", "aiter::rmsnorm2d_fwd_with_add", "aiter::add_rmsnorm"),
        _elementwise_pass("normalization", 9, 1),
    ),
    # values: `out` first, or none
    **dict.fromkeys(
        (
            *(f"{namespace}::{name}_and_mul" for namespace in _NAMESPACES for name in ("silu", "gelu", "gelu_tanh")),
            "_C::static_scaled_fp8_quant",
            "_C::dynamic_scaled_fp8_quant",
            "_C::dynamic_per_token_scaled_fp8_quant",
            "aiter::static_per_tensor_quant",
            "aiter::dynamic_per_tensor_quant",
            "aiter::dynamic_per_token_scaled_quant",
        ),
        _elementwise_pass("elementwise", 2, 0),
    ),
    **dict.fromkeys(("_C::rotary_embedding", "sgl_kernel::rotary_embedding"), _rotary),
    **dict.fromkeys(
        ("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", "sglang::store_cache"),
        _cache_write(2, 3),
    ),
    "_C_cache_ops::concat_and_cache_mla": _cache_write(2),
}
