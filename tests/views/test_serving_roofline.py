"""Operations and bytes of inference servers' operators, computed by hand, and those of real steps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Write, answer
from tests.recordings import recording_path
from tests.views.test_roofline import H200, operator, table
from tests.views.test_steps import host, kernel, launch
from visualprof.reader.trace.serving import parse_serving_step
from visualprof.views.measure.launches.operator_call import torch_call
from visualprof.views.measure.work.call_work import CallWork
from visualprof.views.measure.work.catalog import call_work

BF16, FP8, BYTE, INT = "c10::BFloat16", "c10::Float8_e4m3fn", "unsigned char", "int"
PREFILL = "step[EXTEND bs=2 toks=12 c_sqsq=80 c_sqsk=120 c_sk=20]"  # 8 and 4 new tokens; 10 tokens per request
DECODE = "step[DECODE bs=2 g_sqsq=2 g_sqsk=30 g_sk=30]"
MIXED = "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]"


def work(name: str, *inputs: tuple[list[int], str], values: list[str] | None = None, step: str = "") -> CallWork | None:
    shapes, types = json.dumps([shape for shape, _ in inputs]), json.dumps([type for _, type in inputs])
    call = torch_call(name, shapes, types, json.dumps(values) if values else "")
    return call_work(call._replace(serving_step=parse_serving_step(step)))


def attention(step: str, tokens: int, type: str = BF16) -> CallWork | None:
    query, key = ([tokens, 4, 8], type), ([tokens, 2, 8], BF16)
    return work("vllm::unified_attention_with_output", query, key, key, ([tokens, 4, 8], BF16), step=step)


@pytest.mark.parametrize(
    ("step", "tokens", "flops", "moved"),
    [
        # 4 query heads of width 8 over 2 key heads: decode 2 x 30 pairs, prefill 2 x 120 - 80 masked pairs, 2 products
        (DECODE, 2, 60 * 4 * 16, 2 * 4 * 32 + 30 * 2 * 16 * 2),
        (PREFILL, 12, 160 * 4 * 16, 12 * 4 * 32 + 20 * 2 * 16 * 2),
        (MIXED, 6, (2 * 40 - 25 + 2 * 12) * 4 * 16, 6 * 4 * 32 + 20 * 2 * 16 * 2),
        (MIXED, 8, (2 * 40 - 25 + 2 * 12) * 4 * 16, 6 * 4 * 32 + 20 * 2 * 16 * 2),  # padded
        (MIXED, 5, (2 * 40 - 25) * 4 * 16, 5 * 4 * 32 + 8 * 2 * 16 * 2),  # prefill only
        (MIXED, 1, 2 * 12 * 4 * 16, 1 * 4 * 32 + 12 * 2 * 16 * 2),  # decode only
    ],
)
def test_attention_uses_the_lengths_of_the_steps_requests(step: str, tokens: int, flops: int, moved: int) -> None:
    assert attention(step, tokens) == CallWork("attention", flops, moved, "bf16")


@pytest.mark.parametrize(("step", "tokens"), [("", 2), ("step[DECODE bs=2]", 2), (MIXED, 3), (PREFILL, 11)])
def test_attention_with_unknown_request_lengths_is_unknown(step: str, tokens: int) -> None:
    assert attention(step, tokens) is None


def test_the_wrappers_of_sglangs_profiler_have_the_work_of_their_operator(write: Write) -> None:
    """32 requests of 32,785 tokens in total, 32 heads of 128 over 8: 0.53714944 GFLOP, as in TraceLens's report."""
    name = "step[DECODE bs=32 g_sq=32 g_sqsq=32 g_sqsk=32785 g_sk=32785]"
    query, cache = [32, 32, 128], [835874, 1, 8, 128]
    wrapper = "sglang_profiler::attention_paged_attention_ragged_100"
    call = operator(wrapper, 5, 50, [query, [99], query, cache, cache], BF16)
    events = [host("user_annotation", name, 0, 90), call, launch(10, 1), kernel(20, 5, 1)]
    (row,) = table(answer("roofline", write(events)))
    assert (row["family"], row["flops"]) == ("attention", 2 * 32785 * 32 * 256)


def test_attention_of_whole_sequences_needs_no_annotation() -> None:
    """Flux.1 on MI300X, 4,608 tokens of 24 heads of 128: 260.919 GFLOP and 108 MiB, as in TraceLens's report."""
    qkv = [([1, 4608, 24, 128], BF16)] * 3
    result = work("aiter::fmha_v3_fwd", *qkv)
    assert result == CallWork("attention", 4 * 4608**2 * 24 * 128, 108 * 2**20, "bf16")


def test_narrow_queries_imply_a_narrow_cache() -> None:
    result = attention(DECODE, 2, FP8)
    assert result == CallWork("attention", 60 * 4 * 16, 2 * 4 * (8 * 1 + 8 * 2) + 30 * 2 * 16 * 1, "fp8")


def test_paged_caches_have_heads_in_the_second_last_dimension() -> None:
    pages = ([50, 16, 2, 8], BF16)
    result = work("_vllm_fa2_C::varlen_fwd", ([2, 4, 8], BF16), pages, pages, step=DECODE)
    assert result == CallWork("attention", 60 * 4 * 16, 2 * 4 * 32 + 30 * 2 * 16 * 2, "bf16")
    shapes = (([2, 4, 8], BF16), ([9], BYTE), ([2, 4, 8], BF16), pages, pages)
    assert work("aiter::paged_attention_ragged", *shapes, step=DECODE) == result


def test_latent_attention_uses_the_latent_width_for_decoding() -> None:
    """4 heads; queries of width 12, values of 8, a latent of 32 and a rotary part of 4."""
    inputs = ([6, 4, 12], BF16), ([6, 32], BF16), ([6, 1, 4], BF16), ([6, 32], BF16)
    result = work("vllm::unified_mla_attention_with_output", *inputs, step=MIXED)
    flops = 4 * ((2 * 40 - 25) * (12 + 8) + 2 * 12 * (2 * 32 + 4))
    assert result == CallWork("attention", flops, 6 * 4 * (12 + 8) * 2 + 20 * 36 * 2, "bf16")
    decode = ([2, 4, 36], BF16), ([70, 1, 1, 36], BF16), ([2, 4, 32], BF16)
    result = work("aiter::mla_decode_fwd", *decode, step=DECODE)
    assert result == CallWork("attention", 2 * 30 * 4 * (36 + 32), 2 * 4 * 68 * 2 + 30 * 36 * 2, "bf16")


@pytest.mark.parametrize(
    ("name", "inputs", "values", "moved", "type"),
    [  # all are 3 x 8 times 8 x 16
        ("aiter::gemm_a8w8_blockscale_ck", [([3, 8], FP8), ([16, 8], FP8)], [], 24 + 128 + 96, "fp8"),
        ("sgl_kernel::fp8_scaled_mm", [([3, 8], FP8), ([8, 16], FP8)], [], 24 + 128 + 96, "fp8"),
        ("_C::cutlass_scaled_mm", [([3, 16], BF16), ([3, 8], FP8), ([8, 16], FP8)], [], 24 + 128 + 96, "fp8"),
        ("_C::cutlass_scaled_fp4_mm", [([3, 16], BF16), ([3, 4], BYTE), ([16, 4], BYTE)], [], 12 + 64 + 96, "fp4"),
        ("aten::_weight_int8pack_mm", [([3, 8], BF16), ([16, 8], "signed char")], [], 48 + 128 + 96, "bf16"),
        ("_C::awq_gemm", [([3, 8], BF16), ([8, 2], INT)], [], 48 + 64 + 96, "bf16"),
        (
            "aten::_weight_int4pack_mm",
            [([3, 8], BF16), ([2, 1, 32, 4], INT), ([], "Scalar"), ([1, 16, 2], BF16)],
            [],
            48 + 1024 + 64 + 96,
            "bf16",
        ),
        (
            "_C::gptq_marlin_gemm",
            [([3, 8], BF16), ([], ""), ([1, 32], INT), ([1, 16], BF16), *[([], "Scalar")] * 4],
            ["", "", "", "", "1024", "3", "16", "8"],
            48 + 128 + 96,
            "bf16",
        ),
    ],
)
def test_products_of_narrow_types(
    name: str, inputs: list[tuple[list[int], str]], values: list[str], moved: int, type: str
) -> None:
    assert work(name, *inputs, values=values) == CallWork("product", 2 * 3 * 8 * 16, moved, type)


def test_a_mixture_of_experts_reads_the_weights_that_its_tokens_choose() -> None:
    """3 tokens of 8 values choose 2 of 4 gated experts of 16: 3 x 2 x 8 x (32 + 16) multiply-adds;
    each expert is used with probability 1 - (1/2)^3.
    """
    experts = ([4, 32, 8], BF16), ([4, 8, 16], BF16)
    weights, tokens = 0.875 * 4 * (32 * 8 + 8 * 16) * 2, 2 * 3 * 8 * 2
    expected = CallWork("product", 2 * 3 * 2 * 8 * 48, tokens + weights, "bf16")
    x, choice = ([3, 8], BF16), ([3, 2], "float")
    assert work("vllm::outplace_fused_experts", x, *experts, choice, choice) == expected
    values = [""] * 8 + ["2"]
    assert work("aiter::fmoe_g1u1", x, x, *experts, *[([9], INT)] * 4, ([], "Scalar"), values=values) == expected
    assert work("trtllm::fused_moe", x, choice, choice, experts[0], ([], ""), experts[1]) == expected
    assert work("vllm::moe_forward", x, ([3, 4], BF16)) is None  # the sizes of its experts are not recorded
    assert work("vllm::outplace_fused_experts", x, experts[0], ([4, 8, 15], BF16), choice) is None


def test_the_two_products_of_a_mixture_of_experts() -> None:
    up, down, sorting = ([4, 32, 8], BF16), ([4, 8, 16], BF16), [([9], INT)] * 3
    result = work("aiter::ck_moe_stage1", ([3, 8], BF16), up, down, *sorting, ([3, 2, 16], BF16))
    assert result == CallWork("product", 2 * 3 * 2 * 32 * 8, 48 + 192 + 0.875 * 4 * 32 * 8 * 2, "bf16")
    result = work("aiter::ck_moe_stage2", ([3, 2, 16], BF16), up, down, *sorting, ([3, 8], BF16))
    assert result == CallWork("product", 2 * 3 * 2 * 8 * 16, 192 + 48 + 0.875 * 4 * 8 * 16 * 2, "bf16")


@pytest.mark.parametrize(
    ("name", "inputs", "expected"),
    [
        ("_C::rms_norm", [[3, 8], [3, 8], [8]], CallWork("normalization", 8 * 24, 48 + 48 + 16, "bf16")),
        ("aiter::rms_norm", [[3, 8], [8]], CallWork("normalization", 8 * 24, 48 + 16 + 48, "bf16")),
        ("_C::fused_add_rms_norm", [[3, 8], [3, 8], [8]], CallWork("normalization", 9 * 24, 4 * 48 + 16, "bf16")),
        ("aiter::add_rmsnorm", [*[[3, 8]] * 4, [8]], CallWork("normalization", 9 * 24, 4 * 48 + 16, "bf16")),
        ("sgl_kernel::silu_and_mul", [[3, 8], [3, 16]], CallWork("elementwise", 2 * 24, 48 + 96, "bf16")),
        # 3 positions, 4 and 1 heads of width 4, one table row of 4 for each position
        (
            "_C::rotary_embedding",
            [[3], [3, 16], [3, 4], [], [99, 4]],
            CallWork("elementwise", 3 * 60, 6 + 3 * 4 * 2 + 2 * (96 + 24), "bf16"),
        ),
        (
            "_C_cache_ops::reshape_and_cache_flash",
            [*[[3, 1, 4]] * 2, *[[9, 2, 1, 4]] * 2],
            CallWork("copy", 0, 96, "bf16"),
        ),
    ],
)
def test_elementwise_operators_and_norms_move_each_tensor_once(
    name: str, inputs: list[list[int]], expected: CallWork
) -> None:
    assert work(name, *((shape, BF16) for shape in inputs)) == expected


def test_each_phase_has_its_share_of_the_devices_peak(write: Write) -> None:
    """Products of 1024 and of 64 rows times 4096 x 4096, in a prefill of 1 ms and a decode of 200 us."""
    events: list[dict[str, Any]] = []
    plan = (
        (0, 1000, 1024, "execute_context_1(1024)_generation_0(0)"),
        (1200, 200, 64, "execute_context_0(0)_generation_64(64)"),
    )
    for i, (at, dur, rows, name) in enumerate(plan):
        shapes: list[Any] = [[rows, 4096], [4096, 4096]]
        events += [host("user_annotation", name, at, dur), operator("aten::mm", at + 10, 50, shapes, BF16)]
        events += [launch(at + 20, i + 1), kernel(at + 30, 100, i + 1)]
    result = answer("roofline", write(events, deviceProperties=[H200]))["phases"]
    prefill, decode = table(result)
    peak, memory = 4096 * 132 * 1830e6, 4800e9
    flops = 2 * 1024 * 4096 * 4096
    moved = (2 * 1024 * 4096 + 4096 * 4096) * 2
    assert (prefill["phase"], prefill["steps"], prefill["step_ns"], prefill["bytes"]) == (
        "prefill",
        1,
        1_000_000,
        moved,
    )
    assert prefill["mfu"] == pytest.approx(flops / peak / 1e-3)
    assert prefill["of_bandwidth"] == pytest.approx(moved / 1e-3 / memory)
    assert prefill["of_roof"] == pytest.approx(flops / peak / 100e-6)
    assert (decode["phase"], decode["placed_ratio"]) == ("decode", 1)
    assert decode["of_roof"] == pytest.approx((2 * 64 * 4096 + 4096 * 4096) * 2 / memory / 100e-6)


def test_a_wrapper_counts_only_without_a_torch_product_inside(write: Write) -> None:
    outer = operator("vllm::rocm_unquantized_gemm", 0, 50, [[3, 8], [16, 8]], BF16)
    inner = operator("aten::mm", 5, 40, [[3, 8], [8, 16]], BF16)
    single = operator("aiter::gemm_a16w16", 100, 50, [[3, 8], [16, 8]], BF16)
    events = [outer, inner, single, launch(10, 1), kernel(20, 5, 1), launch(110, 2), kernel(120, 5, 2)]
    rows = table(answer("roofline", write(events)))
    assert [(row["name"], row["flops"]) for row in rows] == [("aten::mm", 768), ("aiter::gemm_a16w16", 768)]


def test_the_prefill_of_sglang_has_the_work_of_its_model() -> None:
    """Qwen3-8B, 36 layers of 32 heads of 128 over 8, 15 prompts of 1,024: 15 x 1024^2 / 2 pairs per
    head, 4 x 128 each.

    Times: traces/tracelens/README.md.
    """
    result = answer("roofline", recording_path("traces/tracelens/sglang_prefill.json.gz"))
    rows = table(result)
    (attention,) = (row for row in rows if row["name"] == "aiter::mha_batch_prefill")
    assert (attention["flops"], attention["calls"]) == (36 * 15 * 1024**2 / 2 * 32 * 4 * 128, 36)
    assert attention["total_ns"] / 1000 == pytest.approx(20_075.2, rel=1e-5)
    layer = 4096 * (6144 + 4096 + 24576) + 12288 * 4096  # weights of a layer's products
    products = sum(row["flops"] for row in rows if row["name"] == "aten::mm")
    assert products == 2 * (15360 * 36 * layer + 15 * 4096 * 151936)
    assert sum(row["total_ns"] for row in rows if row["name"] == "aiter::rmsnorm") / 1000 == pytest.approx(
        17_559.4, rel=1e-5
    )
    assert result["phases"]["columns"]["phase"] == ["prefill"]
    assert result["placed_ratio"] > 0.999


def test_calls_of_equal_shapes_are_one_row_with_summed_work(write: Write) -> None:
    events: list[dict[str, Any]] = []
    for i, sums in enumerate((30, 32)):
        name = f"step[DECODE bs=2 g_sqsq=2 g_sqsk={sums} g_sk={sums}]"
        shapes: list[Any] = [[2, 4, 8], [2, 2, 8], [2, 2, 8], [2, 4, 8]]
        call = operator("vllm::unified_attention_with_output", 100 * i + 5, 50, shapes, BF16)
        events += [
            host("user_annotation", name, 100 * i, 90),
            call,
            launch(100 * i + 10, i + 1),
            kernel(100 * i + 20, 5, i + 1),
        ]
    (row,) = table(answer("roofline", write(events)))
    assert (row["calls"], row["flops"]) == (2, 2 * (30 + 32) * 4 * 16)
