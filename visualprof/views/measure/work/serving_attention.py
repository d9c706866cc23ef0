"""Operations and bytes of attention in inference servers."""

from __future__ import annotations

from typing import NamedTuple

from visualprof.reader.trace.serving import Load
from visualprof.views.measure.launches.operator_call import NotRecorded, OperatorCall
from visualprof.views.measure.work.call_work import CallWork, Formula

NO_LOAD = Load(0, 0, 0, 0, 0)
OUTPUT_BYTES = 2  # element size (bf16, fp16) of a product of narrow types whose output is not an argument


class AttentionArgs(NamedTuple):
    """Positions of attention's arguments; `out` is -1 if the output is not an argument."""

    query: int
    key: int
    value: int
    out: int = -1


def _requests(call: OperatorCall, queries: int) -> tuple[Load, Load]:
    """Return the prefill and decode loads of a call with a number of queries.

    They are those of the whole step, or only one of the two.

    Raises:
        NotRecorded: No annotation records the loads, or it is ambiguous which of the two the call
            processes.
    """
    if call.serving_step is None:
        raise NotRecorded
    prefill, decode = call.serving_step.prefill, call.serving_step.decode
    for load in (prefill, decode):
        if None in load:
            raise NotRecorded
    prefill_tokens, decode_tokens = prefill.tokens or 0, decode.tokens or 0
    if queries >= prefill_tokens + decode_tokens > 0:  # padded to the sizes of captured graphs
        return prefill, decode
    if prefill_tokens != decode_tokens and queries in (prefill_tokens, decode_tokens):
        return (prefill, NO_LOAD) if queries == prefill_tokens else (NO_LOAD, decode)
    raise NotRecorded


def _double_pairs(prefill: Load, decode: Load) -> float:
    """Return twice the number of pairs of a query and a key that it attends to.

    Half of those within a prompt's own chunk are masked.
    """
    return 2.0 * ((prefill.pairs or 0) + (decode.pairs or 0)) - (prefill.squares or 0)


def _token_counts(prefill: Load, decode: Load) -> tuple[int, int]:
    """Return the number of queries, and of keys that they attend to."""
    return (prefill.tokens or 0) + (decode.tokens or 0), (prefill.context or 0) + (decode.context or 0)


def _attention(positions: AttentionArgs) -> Formula:
    """Return the formula of paged or varlen attention with grouped heads.

    Queries are (tokens, heads, width), keys (..., heads, width).
    """

    def work(call: OperatorCall) -> CallWork:
        query, key, value = call.tensor(positions.query, 3), call.tensor(positions.key), call.tensor(positions.value)
        heads, width = query.shape[1:]
        key_heads, value_width = key.shape[-2], value.shape[-1]
        if key.shape[-1] != width or not key_heads or heads % key_heads or value.shape[-2] != key_heads:
            raise NotRecorded
        prefill, decode = _requests(call, query.shape[0])
        tokens, context = _token_counts(prefill, decode)
        out = call.tensor(positions.out) if positions.out >= 0 else None
        moved_bytes = (
            tokens * heads * (width * query.size + value_width * (out.size if out else max(query.size, OUTPUT_BYTES)))
        )
        moved_bytes += (
            context * key_heads * (width + value_width) * min(query.size, key.size)
        )  # narrow queries imply a narrow cache
        return CallWork(
            "attention", _double_pairs(prefill, decode) * heads * (width + value_width), moved_bytes, query.type
        )

    return work


def _latent_attention(call: OperatorCall) -> CallWork:
    """Return the work of multi-head latent attention.

    Inputs are query (tokens, heads, width), latent (tokens, rank), rotary key and output.

    Prompts attend with keys and values of their own width; decoding attends to the latent itself.
    """
    query, latent, rotary = call.tensor(0, 3), call.tensor(1, 2), call.tensor(2)
    heads, width = query.shape[1:]
    out = call.tensor(3)
    value_width = out.shape[-1] if len(out.shape) == 3 else out.shape[-1] // heads
    rank, rotary_width = latent.shape[-1], rotary.shape[-1]
    prefill, decode = _requests(call, query.shape[0])
    flops = heads * (
        _double_pairs(prefill, NO_LOAD) * (width + value_width)
        + _double_pairs(NO_LOAD, decode) * (2 * rank + rotary_width)
    )
    tokens, context = _token_counts(prefill, decode)
    moved_bytes = (
        tokens * heads * (width * query.size + value_width * out.size) + context * (rank + rotary_width) * latent.size
    )
    return CallWork("attention", flops, moved_bytes, query.type)


def _latent_decode(call: OperatorCall) -> CallWork:
    """Return the work of latent attention with the key projections merged into the query.

    Inputs are query, cache (..., width) and output.
    """
    query, cache, out = call.tensor(0, 3), call.tensor(1), call.tensor(2, 3)
    heads, width = query.shape[1:]
    if cache.shape[-1] != width:
        raise NotRecorded
    prefill, decode = _requests(call, query.shape[0])
    tokens, context = _token_counts(prefill, decode)
    value_width = out.shape[-1]
    moved_bytes = tokens * heads * (width * query.size + value_width * out.size) + context * width * cache.size
    return CallWork(
        "attention", _double_pairs(prefill, decode) * heads * (width + value_width), moved_bytes, query.type
    )


ATTENTION: dict[str, Formula] = {
    **dict.fromkeys(
        ("vllm::unified_attention_with_output", "sglang::unified_attention_with_output"),
        _attention(AttentionArgs(0, 1, 2, 3)),
    ),
    "vllm::unified_attention": _attention(AttentionArgs(0, 1, 2)),
    **dict.fromkeys(
        (
            "aiter::mha_batch_prefill",
            "aiter::mha_varlen_fwd",
            "aiter::fmha_v3_varlen_fwd",
            "_vllm_fa2_C::varlen_fwd",
            "_vllm_fa3_C::fwd",
            "sgl_kernel::fwd",
            "flash_attn::_flash_attn_varlen_forward",
        ),
        _attention(AttentionArgs(0, 1, 2)),
    ),
    "aiter::paged_attention_ragged": _attention(AttentionArgs(2, 3, 4)),
    "vllm::unified_mla_attention_with_output": _latent_attention,
    "aiter::mla_decode_fwd": _latent_decode,
}
