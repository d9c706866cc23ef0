"""Tensor-core use by kernel name compared with the tensor pipe counter of an H200."""

from __future__ import annotations

import csv
from typing import Any

import pytest

from tests.conftest import FIXTURES, Write, answer, rows
from tests.recordings import recording_path
from visualprof.views.measure.names.tensor_core import (
    can_use_tensor_core,
    tensor_core_eligibility,
    tensor_core_use,
    uses_tensor_core,
)

with (FIXTURES / "torch_cuda" / "tensor_pipe.csv").open() as _file:
    PIPE = [(float(row["tensor_pipe_percent"]), row["kernel"]) for row in csv.DictReader(_file)]


@pytest.mark.parametrize(("percent", "kernel"), PIPE)
def test_kernel_names_agree_with_the_hardware_counter(percent: float, kernel: str) -> None:
    assert tensor_core_use(kernel) is (percent > 5)


@pytest.mark.parametrize(
    "kernel",
    [
        "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_tn",
        "turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_nt",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "volta_h884gemm_64x64_ldg8_nt",
        "sm80_xmma_dgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8",
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x128_16x3_nt_align4>(cutlass_80_tensorop::Params)",
        "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT",
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Mainloop<2>>>>()",
        "void cutlass::device_kernel<flash::FlashAttnBwd<flash::CollectiveMainloopBwd<2>>>()",
        "void flash::compute_attn_ws<Flash_fwd_kernel_traits<192, 128, 128>>()",
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<2>()",
        "void marlin::Marlin<__nv_bfloat16, 256, 1>()",
        "void cutlass::device_kernel<dpsk::grouped_gemm::cuda::fp8_ptp128c::GemmKernel>()",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<128>()",
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausal",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16",
    ],
)
def test_kernels_that_use_tensor_cores(kernel: str) -> None:
    assert uses_tensor_core(kernel)


@pytest.mark.parametrize(
    "kernel",
    [
        "ampere_sgemm_128x64_tn",
        "volta_sgemm_32x128_nn",
        "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6>",
        "cutlass_80_simt_sgemm_128x64_8x5_nn_align1",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4",
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >",
    ],
)
def test_kernels_that_use_cuda_cores(kernel: str) -> None:
    assert tensor_core_use(kernel) is False


@pytest.mark.parametrize(
    "kernel",
    [
        "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<64>>>>()",
        "void flash_fwd_splitkv_combine_kernel<2>()",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL()",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<2>()",
        "gptq_marlin_repack_kernel",
        "_copy_tensor_kernel",
        "void layer_norm::ln_fwd_kernel<layer_norm::Kernel_traits<float>>()",
        "loop_add_fusion",
        "triton_poi_fused_mm_0",
        "triton_red_fused_mean_1",
        "SubTensorOpWithCastTensor1d",
        "void cuda::per_token_cast_to_fp8_with_channels<__nv_bfloat16, 128>()",
        "void vllm::rms_norm_kernel<float>()",
    ],
)
def test_kernels_that_multiply_no_matrices_use_cuda_cores(kernel: str) -> None:
    assert tensor_core_use(kernel) is False


@pytest.mark.parametrize(
    "kernel",
    [
        "triton_tem_fused_mm_0",
        "gemm_fusion_dot_1",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1",
        "attn_fwd",
        "kernel_unified_attention_2d",
        "my_kernel",
        "kernel1",
        "fused_moe_kernel",
    ],
)
def test_the_names_of_other_kernels_do_not_say(kernel: str) -> None:
    assert tensor_core_use(kernel) is None
    assert not uses_tensor_core(kernel)


def test_time_of_unknown_kernels_stays_out_of_the_ratio_and_is_shown(write: Write) -> None:
    host = {"ph": "X", "pid": 1, "tid": 1}
    events: list[dict[str, Any]] = []
    kernels = (("triton_tem_fused_mm_0", 300), ("nvjet_tst_64x8", 100), ("ampere_sgemm_128x64_tn", 300), ("copy", 100))
    for i, (name, dur) in enumerate(kernels):
        ts = 1000 * i
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": i + 1}}
        place = {"device": 0, "stream": 7, "correlation": i + 1}
        events += [
            {**host, "cat": "cpu_op", "name": "aten::mm", "ts": ts, "dur": 30},
            {**host, **call, "ts": ts + 5, "dur": 5},
            {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts + 50, "dur": dur, "args": place},
        ]
    path = write(events)
    (device,) = answer("overview", path)["devices"]
    assert device["tensor_core_ratio"] == pytest.approx(100 / 500)
    assert device["tensor_core_unknown_ratio"] == pytest.approx(300 / 800)
    kernel = answer("kernel", path)
    assert kernel["tensor_core"] == {"used_ns": 100_000, "unused_ns": 400_000, "unknown_ns": 300_000}
    assert rows(kernel, "tensor_core") == {
        "triton_tem_fused_mm_0": [None],
        "nvjet_tst_64x8": [True],
        "ampere_sgemm_128x64_tn": [False],
        "copy": [False],
    }
    columns = ("tensor_core_self_ratio", "tensor_core_total_ratio", "tensor_core_unknown_ratio")
    assert rows(answer("operator", path), *columns) == {"aten::mm": [0.2, 0.2, 0.375]}


def test_the_reported_file_with_flash_attention_3_and_a_product_of_triton() -> None:
    path = recording_path("cases/reports/29-tensor-core-unknown/trace.json")
    used = list(rows(answer("kernel", path), "tensor_core").values())
    assert used == [[True], [None]]
    (device,) = answer("overview", path)["devices"]
    assert device["tensor_core_ratio"] == 1.0
    assert device["tensor_core_unknown_ratio"] == pytest.approx(900 / 2100)


@pytest.mark.parametrize(
    "operator",
    [
        "aten::addmm",
        "aten::cudnn_convolution",
        "conv2d dygraph",
        "Gemm",
        "ConvolutionForward",
        "MatmulGradNode",
        "Conv2dGradNodeFinal",
        "Global_MatmulGradNode",
        "FusedGemmEpilogueGradNode",
    ],
)
def test_operators_with_a_tensor_core_implementation(operator: str) -> None:
    assert can_use_tensor_core(operator)


@pytest.mark.parametrize(
    "operator", ["aten::add", "aten::convert_to", "Relu", "aten::_softmax", "BatchNormForward", "ReluGradNode"]
)
def test_operators_without_a_tensor_core_implementation(operator: str) -> None:
    assert not can_use_tensor_core(operator)


@pytest.mark.parametrize(
    ("operator", "eligible"),
    [
        ("flash_attn_3::fwd", True),
        ("flash_attn_3::bwd", True),
        ("flash_attn::_flash_attn_forward", True),
        ("flash_attn::_flash_attn_varlen_backward", True),
        ("_vllm_fa3_C::fwd", True),
        ("FlashAttnFunc", True),
        ("xformers::efficient_attention_forward_cutlass", True),
        ("xformers_flash::flash_bwd", True),
        ("flashinfer::batch_prefill_with_paged_kv_cache", True),
        ("vllm::unified_attention_with_output", True),
        ("vllm::moe_forward", True),
        ("_C::gptq_marlin_gemm", True),
        ("sgl_kernel::fp8_scaled_mm", True),
        ("GroupQueryAttention", True),
        ("MatMulNBits", True),
        ("flash_attn_grad", True),
        ("flashinfer::single_decode", None),
        ("sgl_kernel::fwd", None),
        ("mamba_ssm::selective_scan", None),
        ("masked_multihead_attention_", None),
        ("_C::awq_gemv", None),
        ("flash_attn_3::fwd_combine", False),
        ("_vllm_fa3_C::get_scheduler_metadata", False),
        ("_C::rms_norm", False),
        ("_C_cache_ops::reshape_and_cache_flash", False),
        ("_moe_C::topk_softmax", False),
        ("sgl_kernel::moe_fused_gate", False),
        ("vllm::all_reduce", False),
        ("aten::_fused_sdp_choice", False),
        ("autograd::engine::evaluate_function: AddmmBackward0", False),
        ("c10d::allreduce_", False),
        ("triton_poi_fused_convolution_3", False),
    ],
)
def test_operators_of_libraries(operator: str, eligible: bool | None) -> None:
    assert tensor_core_eligibility(operator) is eligible


def test_an_operator_whose_name_does_not_say_is_unknown_in_the_table(write: Write) -> None:
    place = {"device": 0, "stream": 7}
    device = {"id": 0, "name": "NVIDIA H100", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "totalGlobalMem": 1}
    events: list[dict[str, object]] = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 5}
        for ts, name in ((0, "sgl_kernel::fwd"), (10, "flash_attn_3::fwd"), (20, "aten::relu"))
    ]
    events.append({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": place})
    table = answer("operator", write(events, deviceProperties=[device]))
    assert rows(table, "tensor_core_eligible") == {
        "sgl_kernel::fwd": [None],
        "flash_attn_3::fwd": [True],
        "aten::relu": [False],
    }
