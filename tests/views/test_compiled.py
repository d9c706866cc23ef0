"""What torch.compile compiled: beside torch's own counters of the same run, and names taken apart by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, SAMPLES, answer, rows, trace_of
from tests.recordings import recording_path
from visualprof.views import view
from visualprof.views.measure.names.compiled import parse_fusion

CPU = FIXTURES / "torch_compiled" / "graph_break_cpu.pt.trace.json.gz"
TRITON = "traces/tracelens/torch_compile_triton.json.gz"


def test_regions_breaks_and_recompilations_equal_those_of_torch() -> None:
    result = answer("compiled", CPU)
    assert result["graphs"] == 4  # stats.unique_graphs
    assert (result["compilations"], result["recompilations"]) == (2, 2)  # of 4, the others were before the recording
    regions = rows(result, "calls", "breaks", "compilations")
    assert regions == {"0/0": [2, 2, 0], "0/1": [2, 2, 1], "1/0": [2, 0, 0], "1/1": [2, 0, 1]}
    assert (
        sum(breaks > 0 for _, breaks, _ in regions.values()) == 2
    )  # graph_break, counted where a function is compiled
    assert result["breaks"] == 4


def test_compiling_takes_as_long_as_torch_says() -> None:
    took = rows(answer("compiled", CPU), "compile_ns")
    assert took["0/1"][0] / 1e9 == pytest.approx(9.2726, abs=1e-3)  # torch._dynamo.utils.compile_times()
    assert took["1/1"][0] / 1e9 == pytest.approx(3.4756, abs=1e-3)
    assert took["0/0"] == took["1/0"] == [None]


def test_the_shapes_of_two_versions_differ() -> None:
    shapes = rows(answer("compiled", CPU), "input_shapes")
    assert shapes["0/0"][0].startswith("[[256], [8, 64]")
    assert shapes["0/1"][0].startswith("[[256], [16, 64]")


def test_fused_cpu_kernels_equal_those_of_the_generated_code() -> None:
    fused = rows(answer("compiled", CPU)["fused"], "kind", "fuses", "calls", "device_total_ns")
    assert fused["graph_0_cpp_fused_mul_silu_1"] == ["cpp", "mul, silu", 2, 0]
    assert fused["graph_2_cpp_fused_native_layer_norm_0"] == ["cpp", "native_layer_norm", 2, 0]
    assert fused["graph_3_cpp_fused__softmax_add_0"] == ["cpp", "_softmax, add", 2, 0]
    assert len(fused) == 6


def test_a_step_has_its_own_regions(write: Callable[..., Path]) -> None:
    def event(name: str, ts: float, dur: float, cat: str = "cpu_op") -> dict[str, object]:
        return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1, "cat": cat, "args": {}}

    graph = "## Call CompiledFxGraph fabc ##"
    path = write(
        [
            event("ProfilerStep#1", 0, 100, "user_annotation"),
            event("ProfilerStep#2", 100, 100, "user_annotation"),
            event("Torch-Compiled Region: 0/0", 10, 50),
            event(graph, 20, 30, "user_annotation"),
            event("_compile.compile_inner (dynamo_timed)", 101, 9),
            event("Torch-Compiled Region: 0/0", 110, 50),
            event(graph, 120, 20, "user_annotation"),
            event(graph, 170, 5, "user_annotation"),
        ],
        schemaVersion=1,
    )
    first, two = answer("compiled", path, step="1"), answer("compiled", path, step="2")
    assert rows(first, "graph", "calls", "host_total_ns", "graph_ns") == {"0/0": ["fabc", 1, 50_000, 30_000]}
    assert rows(two, "host_total_ns", "graph_ns") == {"0/0": [50_000, 20_000], None: [5_000, 5_000]}
    assert (first["recompilations"], first["compile_ns"]) == (0, 0)
    assert (two["recompilations"], two["compilations"], two["compile_ns"]) == (None, 1, 9_000)  # of what is not said


def test_triton_kernels_have_the_times_of_the_reference_report() -> None:
    path = recording_path(TRITON)
    result = answer("compiled", path)
    kernels, device_ns = rows(result, "kernels", "device_total_ns")["0/0"]
    assert (kernels, device_ns / 1e6) == (12, pytest.approx(12.549, abs=5e-4))  # the computation there
    fused = rows(result["fused"], "kind", "fuses", "device_total_ns")
    assert fused["triton_poi_fused__unsafe_view_mul_silu_2"] == ["pointwise", "_unsafe_view, mul, silu", 527_382]
    fuses = rows(answer("kernel", path), "fuses")
    assert fuses["triton_red_fused_add_mean_mul_pow_rsqrt_0"] == ["add, mean, mul, pow, rsqrt"]
    assert fuses["attn_fwd"] == [None]


@pytest.mark.parametrize(
    ("name", "kind", "operators"),
    [
        ("triton_poi_fused_add_0", "pointwise", "add"),
        ("triton_per_fused__softmax_13", "persistent_reduction", "_softmax"),
        (
            "triton_per_fused_add_native_layer_norm_native_layer_norm_backward_1",
            "persistent_reduction",
            "add native_layer_norm native_layer_norm_backward",
        ),
        (
            "triton_red_fused__log_softmax__log_softmax_backward_data__to_copy_nll_loss_forward_5",
            "reduction",
            "_log_softmax _log_softmax_backward_data _to_copy nll_loss_forward",
        ),
        ("triton_tem_fused_addmm_relu_t_7", "template", "addmm relu t"),
        (
            "triton_poi_fused_convolution_max_pool2d_with_indices_relu_threshold_backward_2",
            "pointwise",
            "convolution max_pool2d_with_indices relu threshold_backward",
        ),
        ("triton_poi_fused_add_slice_scatter_3", "pointwise", "add slice_scatter"),  # no known name: by the order
        ("cpp_fused__to_copy_mean_1", "cpp", "_to_copy mean"),
    ],
)
def test_names_are_taken_apart(name: str, kind: str, operators: str) -> None:
    fusion = parse_fusion(name)
    assert fusion is not None
    assert (fusion.kind, " ".join(fusion.operators)) == (kind, operators)


@pytest.mark.parametrize(
    "name", ["triton_mm_3", "triton_poi_fused_", "ampere_sgemm_128x64_tn", "fused_add_0", "", "aten::mm"]
)
def test_other_names_fuse_nothing(name: str) -> None:
    assert parse_fusion(name) is None


def test_a_recording_without_compilation_has_no_view() -> None:
    assert not view("compiled").needs(trace_of(SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz"))
