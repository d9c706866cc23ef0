"""Short names of kernels: families, demangling, uniqueness, and where answers have them."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Write, answer, json_of, trace_of
from tests.reader.test_kineto import call, kernel, op
from tests.recordings import recording_path
from visualprof.views import view
from visualprof.views.answers.table import Selection, select_rows
from visualprof.views.measure.launches.answer_names import trace_short_names
from visualprof.views.measure.names.cpp_names import parse_cpp_name, split_arguments
from visualprof.views.measure.names.kernel_names import short_name, short_names
from visualprof.views.measure.names.mangled_names import demangle

MUL = "at::native::binary_internal::MulFunctor<float>"
NEG = (
    "at::native::neg_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda()#9}"
    "::operator()() const::{lambda(c10::BFloat16)#1}"
)
TRAITS = "Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t, Base<64, cutlass::bfloat16_t> >"
GEMM = "cutlass_80_tensorop_s1688gemm_128x256_32x3_nt_align4"
COLLECTIVE = (
    "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmma<7>, cute::tuple<cute::C<128>, "
    "cute::C<256>, cute::C<64> >, cutlass::bfloat16_t>"
)

FAMILIES = {
    # PyTorch: the functor or the lambda names the operation
    f"void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, {MUL} >, "
    "at::detail::Array<char*, 3> >(int, at::detail::Array<char*, 3>)": "elementwise mul f32 vec4",
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul> >(int, std::array<char*, 3ul>)": "elementwise add bf16 vec8",
    f"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<{NEG}>(at::TensorIteratorBase&, "
    f"{NEG} const&)::{{lambda(int)#1}}>(int)": "elementwise neg bf16 strided",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::MeanOps<c10::BFloat16, "
    "float, float, c10::BFloat16>, unsigned int, c10::BFloat16, 4, 4> >(int)": "reduce mean bf16 512x1",
    "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
    "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, "
    "unsigned int, float, 4> >(int)": "reduce sum f32 128x4",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, "
    "(at::native::ADAM_MODE)1, false>, float const*, double>(int)": "multi-tensor FusedAdam f32",
    # CUTLASS, cuBLAS, cuDNN and xmma: operation, precision, tile with its depth, layout
    f"void cutlass::Kernel<{GEMM}>({GEMM}::Params)": "cutlass gemm tf32 128x256x32 nt",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(int)": "cutlass gemm f32 64x64x8 nn",
    f"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<Shape, {COLLECTIVE} > >(int)": (
        "cutlass gemm bf16 128x256x64"
    ),
    "ampere_sgemm_128x64_tn": "cuBLAS gemm f32 128x64 tn",
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_nn": "cuBLAS gemm f16 128x128x64 nn",
    "volta_scudnn_128x64_relu_interior_nn_v1": "cuDNN conv f32 128x64 nn",
    "sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_stage5_warpsize2x2x1_g1_"
    "tensor16x8x8_execute_kernel_cudnn_infer": "cuDNN conv dgrad tf32 64x128x32 nhwc",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_"
    "cublas": "cuBLAS gemm bf16 128x64x64 tn",
    "nvjet_tst_192x8_64x8_4x1_v_bz_TNT": "cuBLASLt nvjet gemm bf16 192x8x64 tnt",
    # AMD: A is transposed if its index l is before i, B if j is before l
    "Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT32x32x64_MI16x16x1_SN_LDSB0": "hipBLASLt gemm bf16 32x32x64 tn",
    "Cijk_Ailk_Bjlk_SB_MT64x16x16_MI16x16x1_SN_LDSB0": "rocBLAS gemm f32 64x16x16 nt",
    "igemm_wrw_gtcx2_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8_ws1x1": "MIOpen conv wgrad bf16 128x64x32 nhwc",
    # attention
    f"void pytorch_flash::flash_fwd_kernel<pytorch_flash::{TRAITS}, false, true>(pytorch_flash::Flash_fwd_params)": (
        "FlashAttention fwd bf16 head 64 128x128"
    ),
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0": (
        "cuDNN attention bwd f16 64x64x64"
    ),
    "fmha_cutlassF_f16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::Params)": (
        "memory-efficient attention fwd f16 64x128"
    ),
    # compilers, collectives, Ascend, anything else in C++
    "triton_poi_fused__unsafe_view_mul_silu_2": "Triton pointwise _unsafe_view+mul+silu #2",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "NCCL AllReduce Sum bf16 ring LL",
    "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclWorkElem)": "NCCL Broadcast Sum i8 ring LL",
    "aclnnTopk_CastAiCore_Cast": "Cast (Topk)",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 1, false, false>(float*, float const*)": (
        "softmax_warp_forward f32"
    ),
    "void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(c10::BFloat16*)": "vllm::rms_norm_kernel bf16",
    "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
    "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)": "vllm::fused_add_rms_norm_kernel bf16",
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb0ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib": (
        "aiter::add_rmsnorm_quant_kernel bf16"
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_short_name_says_what_precision_tile_and_layout(name: str) -> None:
    assert short_name(name) == FAMILIES[name]


@pytest.mark.parametrize(
    "name",
    [
        "gemm_a",
        "Conv2D4",
        "conv1.Convolution",
        "FUSE_MUL_ADD3(const<0.177>[24],reshape[180],mask)[867]",
        "",
        "_Z",
        "loop_transpose_fusion.kd",
        "Memcpy HtoD (Pinned -> Device)",
        "a < b",
        "_Z" + "9" * 50,
    ],
)
def test_a_name_that_no_rule_knows_stays_as_it_is(name: str) -> None:
    assert short_name(name) == name


def test_equal_short_names_are_lengthened_by_what_differs_in_the_full_names() -> None:
    short = short_names(
        [
            "void f<float, 1>(int)",
            "void f<float, 2>(int)",
            "void g<float>(int)",
            *(f"volta_sgemm_64x64_{x}" for x in "n"),
        ]
    )
    assert short == {
        "void f<float, 1>(int)": "f f32 [1]",
        "void f<float, 2>(int)": "f f32 [2]",
        "void g<float>(int)": "g f32",
        "volta_sgemm_64x64_n": "cuBLAS gemm f32 64x64",
    }


def test_short_names_differ_even_where_no_word_differs() -> None:
    names = ["void f<1, 2>(int)", "void f<2, 1>(int)", "void f< 1, 2>(int)"]
    assert len(set(short_names(names).values())) == 3


def test_a_short_name_is_never_the_full_name_of_another_kernel() -> None:
    names = ["f f32", "void f<float>(int)"]
    short = short_names(names)
    assert len({short.get(name, name) for name in names}) == 2


@pytest.mark.parametrize(
    "name",
    [
        "x" + "(a" * 3990,
        "igemm_fwd_" + "nhwc_bf16_bt1x" * 500,
        "aclnn" + "a_" * 3900 + "!",
        "void f" + "<a" * 3900,
        "void " + "a) [x]" * 1300,
        "_ZN" + "1a" * 3900 + "E",
        "ncclKernel_" + "a_" * 3900,
        "y(" * 50_000,
    ],
)
def test_hostile_names_take_little_time(name: str) -> None:
    started = time.process_time()
    assert short_name(name)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z3addPf", "add"),
        ("_ZN2at3addILi4EfEEvPT0_", "at::add<4, float>"),
        (  # S0_ is the second component that was read: at::native
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
            "at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3>>",
        ),
        (  # the third parameter is a function: the address of silu
            "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i",
            "sgl_hip::activation::act_and_mul_kernel<__hip_bfloat16, &silu<__hip_bfloat16>>",
        ),
        ("_ZN3foo12_GLOBAL__N_13barIbLb1EEEvv", "foo::(anonymous namespace)::bar<bool, true>"),
    ],
)
def test_mangled_names_are_demangled_without_their_parameters(mangled: str, name: str) -> None:
    assert demangle(mangled) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "main",
        "_Z",
        "_ZN",
        "_Z99x",
        "_ZN1aI",
        "_ZNS9_1aE",
        "_Z1aIXplLi1ELi2EEEvv",
        "_ZN" * 5000,
        "_Z" + "Z" * 5000,
        "_Z1fI" + "J" * 3000,
        "_Z1fIN1aI" + "".join(f"NS_1bIS{i}_S{i}_EE" for i in "0123456789ABCDEFGHIJ") + "EE",
    ],
)
def test_names_that_cannot_be_demangled_give_none(text: str) -> None:
    assert demangle(text) is None


def test_cpp_names_are_split_at_their_outermost_brackets() -> None:
    name = parse_cpp_name("void a::(anonymous namespace)::f<g<1, 2>, (b::Kind)3, h(int, int)::{lambda(int)#1}>(c<d>)")
    assert name == ("a::f", ("g<1, 2>", "(b::Kind)3", "h(int, int)::{lambda(int)#1}"))
    assert parse_cpp_name("f<int, g<fl") == ("f", ("int", "g<fl"))
    assert parse_cpp_name("bool a::operator< <int>(int)") == ("a::operator", ("int",))
    assert split_arguments("a, b<c, d>, ") == ["a", "b<c, d>"]


FULL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, X>(int, X)"


def recording(write: Write) -> Any:
    return write(
        [
            op("aten::add", 0, 100),
            call(10, 1),
            kernel(20, 1, dur=30, name=FULL),
            call(60, 2),
            kernel(70, 2, dur=10, name="plain_kernel_with_a_long_name"),
        ]
    )


def kernel_answer(path: Path) -> Any:
    return view("kernel").answer(trace_of(path), view("kernel").parse({}))


def test_answers_map_full_names_to_short_ones(write: Write) -> None:
    path = recording(write)
    kernels = json_of(kernel_answer(path))
    assert kernels["columns"]["name"] == [FULL, "plain_kernel_with_a_long_name"]
    assert kernels["short_names"] == {FULL: "elementwise add f32 vec4"}
    assert trace_short_names(trace_of(path)) == {FULL: "elementwise add f32 vec4"}
    assert "short_names" not in answer("operator", path)


def test_rows_are_found_by_their_short_names_too(write: Write) -> None:
    table = kernel_answer(recording(write))
    for selection in (Selection(search={"name": "ADD f32"}), Selection(equal={"name": "elementwise add f32 vec4"})):
        found = select_rows(table, selection)
        assert found.columns.name == [FULL]
        assert found.short_names == {FULL: "elementwise add f32 vec4"}
    assert select_rows(table, Selection(search={"name": "plain"})).short_names == {}


@pytest.mark.parametrize(
    "file",
    ["kineto/tb_plugin/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz", "tracelens"],
)
def test_every_kernel_of_real_recordings_has_a_readable_name_of_its_own(file: str) -> None:
    path = recording_path(f"traces/{file}")
    for file_path in sorted(path.glob("*.json.gz")) if path.is_dir() else [path]:
        short = trace_short_names(trace_of(file_path))
        assert len(set(short.values())) == len(short)
        for name, text in short.items():
            assert len(text) <= max(100, len(name)), text
            assert not re.search(r"void |[<>{}]|::native", text), text
