"""Operations and bytes of the operators of inference servers: vLLM, SGLang, AITER, TensorRT-LLM.

Attention works on requests whose lengths no shape has: they are those of the step's annotation (`Call.load`). Where
values of 4 bits are packed, a product's operations are those of the values. docs/views.md#roofline.
"""

from __future__ import annotations

from typing import NamedTuple

from visualprof.reader.trace.serving import Load
from visualprof.views.measure.operator_call import NotRecorded, OperatorCall
from visualprof.views.measure.work.formulas import CallWork, Family, Formula, total_bytes

NO_LOAD = Load(0, 0, 0, 0, 0)
PACKED = ("fp4", "uint8", "int32")
WIDE = 2  # bytes of what comes out of a product of narrow types, bf16 or fp16, where it is no argument


class AttentionArgs(NamedTuple):
    """Places of attention's inputs. out: -1 where what comes out is no argument."""

    query: int
    key: int
    value: int
    out: int = -1


def _requests(call: OperatorCall, queries: int) -> tuple[Load, Load]:
    """The prefill and the decode of a call that has so many queries: those of the step, or of one of its halves.

    Raises: Unknown: no annotation says it, or it does not say which of the two.
    """
    if call.serving_step is None:
        raise NotRecorded
    prefill, decode = call.serving_step.prefill, call.serving_step.decode
    for load in (prefill, decode):
        if None in load:
            raise NotRecorded
    first, second = prefill.tokens or 0, decode.tokens or 0
    if queries >= first + second > 0:  # padded to the sizes of captured graphs
        return prefill, decode
    if first != second and queries in (first, second):
        return (prefill, NO_LOAD) if queries == first else (NO_LOAD, decode)
    raise NotRecorded


def _pairs(prefill: Load, decode: Load) -> float:
    """Pairs of a query and what it attends to, twice: half of those within a prompt's own chunk are masked."""
    return 2.0 * ((prefill.pairs or 0) + (decode.pairs or 0)) - (prefill.squares or 0)


def _sizes(prefill: Load, decode: Load) -> tuple[int, int]:
    """Query, and what they attend to."""
    return (prefill.tokens or 0) + (decode.tokens or 0), (prefill.context or 0) + (decode.context or 0)


def _attention(at: AttentionArgs) -> Formula:
    """Paged or varlen attention of grouped heads: queries (tokens, heads, width), keys (..., heads, width)."""

    def work(call: OperatorCall) -> CallWork:
        query, key, value = call.tensor(at.query, 3), call.tensor(at.key), call.tensor(at.value)
        heads, width = query.shape[1:]
        groups, deep = key.shape[-2], value.shape[-1]
        if key.shape[-1] != width or not groups or heads % groups or value.shape[-2] != groups:
            raise NotRecorded
        prefill, decode = _requests(call, query.shape[0])
        tokens, context = _sizes(prefill, decode)
        out = call.tensor(at.out) if at.out >= 0 else None
        moved = tokens * heads * (width * query.size + deep * (out.size if out else max(query.size, WIDE)))
        moved += context * groups * (width + deep) * min(query.size, key.size)  # narrow queries meet a narrow cache
        return CallWork("attention", _pairs(prefill, decode) * heads * (width + deep), moved, query.type)

    return work


def _latent_attention(call: OperatorCall) -> CallWork:
    """Multi-head latent attention: query (tokens, heads, width), latent (tokens, rank), rotary key, and what comes out.

    Prompts attend with keys and values of their own width; what decodes does so to the latent itself.
    """
    query, latent, rotary = call.tensor(0, 3), call.tensor(1, 2), call.tensor(2)
    heads, width = query.shape[1:]
    out = call.tensor(3)
    deep = out.shape[-1] if len(out.shape) == 3 else out.shape[-1] // heads
    rank, narrow = latent.shape[-1], rotary.shape[-1]
    prefill, decode = _requests(call, query.shape[0])
    flops = heads * (_pairs(prefill, NO_LOAD) * (width + deep) + _pairs(NO_LOAD, decode) * (2 * rank + narrow))
    tokens, context = _sizes(prefill, decode)
    moved = tokens * heads * (width * query.size + deep * out.size) + context * (rank + narrow) * latent.size
    return CallWork("attention", flops, moved, query.type)


def _latent_decode(call: OperatorCall) -> CallWork:
    """The same with the projections of the keys taken into the query: query, cache (..., width), what comes out."""
    query, cache, out = call.tensor(0, 3), call.tensor(1), call.tensor(2, 3)
    heads, width = query.shape[1:]
    if cache.shape[-1] != width:
        raise NotRecorded
    prefill, decode = _requests(call, query.shape[0])
    tokens, context = _sizes(prefill, decode)
    deep = out.shape[-1]
    moved = tokens * heads * (width * query.size + deep * out.size) + context * width * cache.size
    return CallWork("attention", _pairs(prefill, decode) * heads * (width + deep), moved, query.type)


def _product(first: int = 0, out: int = -1, turned: bool = True, packed: int = 1) -> Formula:
    """(..., m, k) times weights of (n, k), or of (k, n) where not turned. packed: values in an element of each."""

    def work(call: OperatorCall) -> CallWork:
        a, b = call.tensor(first), call.tensor(first + 1)
        inner, columns = (b.shape[-1], b.shape[-2]) if turned else (b.shape[-2], b.shape[-1])
        if a.shape[-1] != inner or (packed == 1 and a.type in PACKED):
            raise NotRecorded
        rows = a.elements // max(inner, 1)
        size = call.tensor(out).size if out >= 0 else max(a.size, WIDE)
        type = "fp4" if packed == 2 else a.type
        return CallWork(
            "product", 2.0 * rows * columns * inner * packed, total_bytes(a, b) + rows * columns * size, type
        )

    return work


def _packed_weights(call: OperatorCall) -> CallWork:
    """Activations times packed weights, whose rows and columns are among the numbers: `size_m, size_n, size_k`."""
    a = call.tensor(0, 2)
    rows, inner = a.shape
    numbers = [int(value) if value.isdecimal() else -1 for value in call.values]
    sizes = [
        numbers[i + 1]
        for i in range(len(numbers) - 2)
        if (numbers[i], numbers[i + 2]) == a.shape and numbers[i + 1] > 0
    ]
    if len(sizes) != 1:
        raise NotRecorded
    weights = max((one for one in call.tensors()[1:] if one.type in PACKED), key=lambda one: one.elements)
    return CallWork(
        "product", 2.0 * rows * inner * sizes[0], total_bytes(a, weights) + rows * sizes[0] * a.size, a.type
    )


def _by_scales(call: OperatorCall) -> CallWork:
    """`_weight_int4pack_mm`: activations, packed weights, size of a group, scales (groups, n, 2)."""
    a, weights, scales = call.tensor(0, 2), call.tensor(1), call.tensor(3, 3)
    columns = scales.shape[1]
    moved = total_bytes(a, weights, scales) + a.shape[0] * columns * a.size
    return CallWork("product", 2.0 * a.elements * columns, moved, a.type)


def _awq(call: OperatorCall) -> CallWork:
    """Activations times weights of 4 bits, 8 in an element of (k, n / 8)."""
    a, weights = call.tensor(0, 2), call.tensor(1, 2)
    if weights.shape[0] != a.shape[1]:
        raise NotRecorded
    columns = 8 * weights.shape[1]
    return CallWork(
        "product", 2.0 * a.elements * columns, total_bytes(a, weights) + a.shape[0] * columns * a.size, a.type
    )


def _experts(tokens: int = 0, up: int = 1, down: int = 2, chosen: int = 3, number: int = -1) -> Formula:
    """A mixture of experts: x (m, k), up (e, 2n or n, k), down (e, k, n), the choice (m, chosen) or a number of them.

    Of the weights those count that m tokens with evenly spread choices meet.
    """

    def work(call: OperatorCall) -> CallWork:
        x, first, second = call.tensor(tokens, 2), call.tensor(up, 3), call.tensor(down, 3)
        rows, width = x.shape
        experts, high, across = first.shape
        many = call.numbers(number)[0] if number >= 0 else call.tensor(chosen, 2).shape[1]
        inner = second.shape[2] * (width // across if across else 1)  # packed as the first ones are
        if (
            x.type in PACKED
            or second.shape[:2] != (experts, width)
            or width % max(across, 1)
            or high not in (inner, 2 * inner)
        ):
            raise NotRecorded
        if not 0 < many <= experts:
            raise NotRecorded
        met = experts * (1 - (1 - many / experts) ** rows)
        moved = 2 * x.bytes + met / experts * total_bytes(first, second)
        return CallWork("product", 2.0 * rows * many * width * (high + inner), moved, x.type)

    return work


def _expert_stage(second: bool) -> Formula:
    """A product of a mixture of experts: the first one of tokens (m, k), the second of (m, chosen, n)."""

    def work(call: OperatorCall) -> CallWork:
        x, up, down = call.tensor(0), call.tensor(1, 3), call.tensor(2, 3)
        weights = down if second else up
        out = call.tensor(6, 2 if second else 3)
        many = x.shape[1] if second else out.shape[1]
        if (
            x.type in PACKED
            or x.shape[-1] != weights.shape[2]
            or not 0 < many <= weights.shape[0]
            or out.shape[0] != x.shape[0]
        ):
            raise NotRecorded
        met = 1 - (1 - many / weights.shape[0]) ** x.shape[0]
        flops = 2.0 * x.shape[0] * many * weights.shape[1] * weights.shape[2]
        return CallWork("product", flops, total_bytes(x, out) + met * weights.bytes, x.type)

    return work


def _each_once(family: Family, flops: int, like: int, again: tuple[int, ...] = (), returned: bool = False) -> Formula:
    """So many operations a value of one tensor; every tensor moves once, those written in place twice.

    returned: what comes out is as large as that tensor, and no argument.
    """

    def work(call: OperatorCall) -> CallWork:
        x = call.tensor(like)
        written = [call.tensor(place) for place in again] + ([x] if returned else [])
        return CallWork(family, float(flops * x.elements), total_bytes(*call.tensors(), *written), x.type)

    return work


def _rotary(call: OperatorCall) -> CallWork:
    """Queries and keys turned in place, 3 operations a value; of the table a row a token."""
    places, query, key, table = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(4, 2)
    rows = places.elements * table.shape[1] * table.size
    flops = 3.0 * (query.elements + key.elements)
    return CallWork("elementwise", flops, places.bytes + rows + 2 * total_bytes(query, key), query.type)


def _into_cache(*written: int) -> Formula:
    """Keys and values into their places: read as they are, written as the caches at some places have them."""

    def work(call: OperatorCall) -> CallWork:
        sources = [call.tensor(0), call.tensor(1)]
        sizes = [call.tensor(place).size for place in written] * (2 // len(written))
        moved = total_bytes(*sources) + sum(x.elements * size for x, size in zip(sources, sizes, strict=True))
        return CallWork("copy", 0.0, moved, sources[0].type)

    return work


_FP8_BLOCKS = """gemm_a8w8_blockscale_ck gemm_a8w8_blockscale_cktile gemm_a8w8_blockscale_bpreshuffle_ck
    gemm_a8w8_blockscale_bpreshuffle_cktile gemm_a8w8_ck gemm_a8w8_bpreshuffle gemm_a8w8_bpreshuffle_ck
    gemm_a8w8_blockscale _gemm_a8w8_blockscale_bpreshuffle_asm flatmm_a8w8_blockscale_asm gemm_a8w8_asm gemm_a8w8"""
_MAKERS = ("_C", "aiter", "sgl_kernel")

WRAPPERS = frozenset(
    ("vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16")
)  # of torch's product, or of one of their own

ATTENTION: dict[str, Formula] = {
    **dict.fromkeys(
        ("vllm::unified_attention_with_output", "sglang::unified_attention_with_output"),
        _attention(AttentionArgs(0, 1, 2, 3)),
    ),
    "vllm::unified_attention": _attention(AttentionArgs(0, 1, 2)),
    **dict.fromkeys(
        (
            "aiter::mha_batch_prefill", "aiter::mha_varlen_fwd", "aiter::fmha_v3_varlen_fwd", "_vllm_fa2_C::varlen_fwd",
            "_vllm_fa3_C::fwd", "sgl_kernel::fwd", "flash_attn::_flash_attn_varlen_forward",
        ),
        _attention(AttentionArgs(0, 1, 2)),
    ),
    "aiter::paged_attention_ragged": _attention(AttentionArgs(2, 3, 4)),
    "vllm::unified_mla_attention_with_output": _latent_attention,
    "aiter::mla_decode_fwd": _latent_decode,
}  # fmt: skip
FORMULAS: dict[str, Formula] = {
    **ATTENTION,
    # products
    **dict.fromkeys(("vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16", "aten::_weight_int8pack_mm"), _product()),
    **{f"aiter::{name}": _product() for name in _FP8_BLOCKS.split()},
    **dict.fromkeys(
        (
            "vllm::w8a8_triton_block_scaled_mm_func", "vllm::padded_cutlass", "vllm::rocm_aiter_gemm_a8w8_blockscale",
            "vllm::rocm_aiter_triton_gemm_a8w8_blockscale",
        ),
        _product(),
    ),
    **dict.fromkeys(("_C::cutlass_scaled_mm", "_C::cutlass_scaled_mm_azp"), _product(1, out=0, turned=False)),
    **dict.fromkeys(
        ("sgl_kernel::fp8_scaled_mm", "sgl_kernel::int8_scaled_mm", "sgl_kernel::fp8_blockwise_scaled_mm"),
        _product(turned=False),
    ),
    **dict.fromkeys(
        ("_C::cutlass_scaled_fp4_mm", "sgl_kernel::cutlass_scaled_fp4_mm"), _product(1, out=0, packed=2)
    ),
    **dict.fromkeys(("aiter::gemm_a4w4_asm", "aiter::gemm_a4w4_blockscale"), _product(packed=2)),
    **dict.fromkeys(
        (
            "_C::gptq_marlin_gemm", "_C::marlin_gemm", "_C::awq_marlin_gemm", "_C::fp8_marlin_gemm",
            "sgl_kernel::gptq_marlin_gemm",
        ),
        _packed_weights,
    ),
    "aten::_weight_int4pack_mm": _by_scales,
    **dict.fromkeys(("_C::awq_gemm", "sgl_kernel::awq_gemm"), _awq),
    # mixtures of experts
    **dict.fromkeys(
        (
            "vllm::inplace_fused_experts", "vllm::outplace_fused_experts", "vllm::rocm_aiter_fused_moe",
            "sglang::inplace_fused_experts", "sglang::outplace_fused_experts", "aiter::fused_moe",
        ),
        _experts(),
    ),
    "trtllm::fused_moe": _experts(0, 3, 5, 1),
    **dict.fromkeys(("aiter::fmoe_fp8_blockscale_g1u1", "aiter::fmoe_g1u1"), _experts(1, 2, 3, number=8)),
    "aiter::ck_moe_stage1": _expert_stage(second=False),
    "aiter::ck_moe_stage2": _expert_stage(second=True),
    # normalization: `out` first, or none
    **dict.fromkeys(
        ("_C::rms_norm", "aiter::rmsnorm", "sgl_kernel::rmsnorm", "sgl_kernel::gemma_rmsnorm"),
        _each_once("normalization", 8, 1),
    ),
    **dict.fromkeys(
        ("aiter::rms_norm", "aiter::rmsnorm2d_fwd", "aiter::rmsnorm2d_fwd_ck", "vllm::rocm_aiter_rms_norm"),
        _each_once("normalization", 8, 0, returned=True),
    ),
    **dict.fromkeys(
        ("_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", "sgl_kernel::gemma_fused_add_rmsnorm"),
        _each_once("normalization", 9, 0, again=(0, 1)),
    ),
    **dict.fromkeys(
        ("aiter::rmsnorm2d_fwd_with_add_ck", "aiter::rmsnorm2d_fwd_with_add", "aiter::add_rmsnorm"),
        _each_once("normalization", 9, 1),
    ),
    # values: `out` first, or none
    **dict.fromkeys(
        (
            *(f"{who}::{what}_and_mul" for who in _MAKERS for what in ("silu", "gelu", "gelu_tanh")),
            "_C::static_scaled_fp8_quant", "_C::dynamic_scaled_fp8_quant", "_C::dynamic_per_token_scaled_fp8_quant",
            "aiter::static_per_tensor_quant", "aiter::dynamic_per_tensor_quant",
            "aiter::dynamic_per_token_scaled_quant",
        ),
        _each_once("elementwise", 2, 0),
    ),
    **dict.fromkeys(("_C::rotary_embedding", "sgl_kernel::rotary_embedding"), _rotary),
    **dict.fromkeys(
        ("_C_cache_ops::reshape_and_cache_flash", "_C_cache_ops::reshape_and_cache", "sglang::store_cache"),
        _into_cache(2, 3),
    ),
    "_C_cache_ops::concat_and_cache_mla": _into_cache(2),
}  # fmt: skip
