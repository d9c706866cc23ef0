"""Tensor-core use by kernel name compared with the tensor pipe counter of an H200."""

from __future__ import annotations

import csv

import pytest

from tests.conftest import FIXTURES
from visualprof.views.measure.tensor_core import can_use_tensor_core, uses_tensor_core

with (FIXTURES / "torch_cuda" / "tensor_pipe.csv").open() as _file:
    PIPE = [(float(row["tensor_pipe_percent"]), row["kernel"]) for row in csv.DictReader(_file)]


@pytest.mark.parametrize(("percent", "kernel"), PIPE)
def test_kernel_names_agree_with_the_hardware_counter(percent: float, kernel: str) -> None:
    assert uses_tensor_core(kernel) == (percent > 5)


@pytest.mark.parametrize(
    "kernel",
    [
        "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_tn", "turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_nt",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "volta_h884gemm_64x64_ldg8_nt",
        "sm80_xmma_dgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8",
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x128_16x3_nt_align4>(cutlass_80_tensorop::Params)",
        "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT",
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4> >",
    ],
)  # fmt: skip
def test_kernels_that_use_tensor_cores(kernel: str) -> None:
    assert uses_tensor_core(kernel)


@pytest.mark.parametrize(
    "kernel",
    [
        "ampere_sgemm_128x64_tn", "volta_sgemm_32x128_nn", "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6>",
        "cutlass_80_simt_sgemm_128x64_8x5_nn_align1",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4",
        "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >",
    ],
)  # fmt: skip
def test_kernels_that_use_cuda_cores(kernel: str) -> None:
    assert not uses_tensor_core(kernel)


@pytest.mark.parametrize(
    "operator",
    [
        "aten::addmm", "aten::cudnn_convolution", "conv2d dygraph", "Gemm", "ConvolutionForward", "MatmulGradNode",
        "Conv2dGradNodeFinal", "Global_MatmulGradNode", "FusedGemmEpilogueGradNode",
    ],
)  # fmt: skip
def test_operators_with_a_tensor_core_implementation(operator: str) -> None:
    assert can_use_tensor_core(operator)


@pytest.mark.parametrize(
    "operator", ["aten::add", "aten::convert_to", "Relu", "aten::_softmax", "BatchNormForward", "ReluGradNode"]
)
def test_operators_without_a_tensor_core_implementation(operator: str) -> None:
    assert not can_use_tensor_core(operator)
