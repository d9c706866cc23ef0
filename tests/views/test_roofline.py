"""FLOPs and bytes of operators, and their share of the peak: by hand, against torch's counter, and
against vendors' data sheets.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.conftest import FIXTURES, SAMPLES, Write, answer, trace_of
from tests.recordings import recording_path
from tests.views.test_steps import Event, host, kernel, launch, step
from visualprof.peaks import find_peak
from visualprof.views.measure.launches.operator_call import onnx_call, torch_call
from visualprof.views.measure.work.call_work import CallWork
from visualprof.views.measure.work.catalog import call_work
from visualprof.views.measure.work.operators import operator_work

H200 = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "numSms": 132}


def work(name: str, shapes: list[Any], types: str, *values: str) -> CallWork | None:
    """Return the work of a call whose inputs have one type; inputs without a shape are numbers."""
    kinds = ["TensorList" if shape and isinstance(shape[0], list) else types if shape else "Scalar" for shape in shapes]
    return call_work(torch_call(name, json.dumps(shapes), json.dumps(kinds), json.dumps(values) if values else ""))


def operator(name: str, ts: int, dur: int, shapes: list[Any], type: str = "float", *values: str) -> Event:
    kinds = [type if shape else "Scalar" for shape in shapes]
    event = host("cpu_op", name, ts, dur)
    event["args"] = {"Input Dims": shapes, "Input type": kinds, **({"Concrete Inputs": list(values)} if values else {})}
    return event


def table(result: dict[str, Any]) -> list[dict[str, Any]]:
    names = list(result["columns"])
    return [dict(zip(names, row, strict=True)) for row in zip(*result["columns"].values(), strict=True)]


def sums(name: str) -> Counter[str]:
    """Return the FLOPs per operator of a recording in tests/fixtures/torch_flops."""
    trace = trace_of(FIXTURES / "torch_flops" / f"{name}.pt.trace.json.gz")
    counted, totals = operator_work(trace), Counter[str]()
    for row, flops in zip(counted.rows, counted.per_call("flops"), strict=True):
        totals[trace.strings[trace.events.name[row]]] += int(flops)
    return totals


def test_flops_equal_those_of_torchs_counter() -> None:
    """`FlopCounterMode` of torch 2.13 counted the same step.

    It multiplies the weight gradient of a grouped convolution by the number of groups.
    2*2*4*4*(32*4*3*3) in 4 groups and 2*2*4*4*(32*12*3*3) in 2 are 73,728 and 221,184; it counts
    them 4 times and 2 times.
    """
    result = sums("convolutions")
    assert (result["aten::convolution"], result["aten::addmm"], result["aten::mm"]) == (3_538_944, 320, 640)
    assert result["aten::convolution_backward"] == 5_111_808 - 3 * 73_728 - 221_184
    result = sums("attention")
    assert (result["aten::addmm"], result["aten::bmm"], result["aten::mm"]) == (150_528, 110_592, 301_056)
    # FlopCounterMode does not count this on the host: 2 products of 2 x 4 heads x 12 x 12 x 8, and 5 in backward.
    assert result["aten::_scaled_dot_product_flash_attention_for_cpu"] == 2 * 2 * 2 * 4 * 12 * 12 * 8
    assert result["aten::_scaled_dot_product_flash_attention_for_cpu_backward"] == 5 * 2 * 2 * 4 * 12 * 12 * 8


@pytest.mark.parametrize(
    ("name", "shapes", "type", "values", "flops", "bytes"),
    [
        ("aten::mm", [[2, 3], [3, 5]], "float", (), 60, 4 * (6 + 15 + 10)),
        ("aten::mv", [[2, 3], [3]], "float", (), 12, 4 * (6 + 3 + 2)),
        ("aten::addmm", [[5], [2, 3], [3, 5]], "c10::Half", (), 60, 2 * (5 + 6 + 15 + 10)),
        ("aten::baddbmm", [[4, 2, 5], [4, 2, 3], [4, 3, 5]], "double", (), 240, 8 * (40 + 24 + 60 + 40)),
        # 8-bit floats to bfloat16, 15 of torch's types.
        (
            "aten::_scaled_mm",
            [[2, 3], [3, 5], [], [], [], [], [], []],
            "c10::Float8_e4m3fn",
            ("", "", "", "", "", "", "15", "True"),
            60,
            6 + 15 + 2 * 10,
        ),
        # One dimension, stride 2: (9 + 2*1 - 1*(3-1) - 1) // 2 + 1 = 5 outputs.
        (
            "aten::convolution",
            [[2, 4, 9], [6, 2, 3], [6], [], [], [], [], [], []],
            "float",
            ("", "", "", "[2]", "[1]", "[1]", "False", "[0]", "2"),
            2 * 2 * 5 * 36,
            4 * (72 + 36 + 6 + 2 * 6 * 5),
        ),
        # Transposed: the input's dimensions count, (5-1)*2 - 2 + 2 + 1 + 1 = 10 outputs, 3 channels per group.
        (
            "aten::convolution",
            [[2, 4, 5], [4, 3, 3], [], [], [], [], [], [], []],
            "float",
            ("", "", "", "[2]", "[1]", "[1]", "True", "[1]", "2"),
            2 * 2 * 5 * 36,
            4 * (40 + 36 + 2 * 6 * 10),
        ),
        # Weight gradient only: reads gradient and input, writes the weight's gradient.
        (
            "aten::convolution_backward",
            [[2, 6, 5], [2, 4, 9], [6, 2, 3], [], [], [], [], [], [], [], []],
            "float",
            ("", "", "", "[6]", "[2]", "[1]", "[1]", "False", "[0]", "2", "[False, True, True]"),
            2 * 2 * 5 * 36,
            4 * (60 + 72 + 36),
        ),
        # 4 query heads share 2 key and value heads: the query heads count.
        (
            "aten::_scaled_dot_product_flash_attention",
            [[1, 4, 6, 8], [1, 2, 10, 8], [1, 2, 10, 8]],
            "c10::BFloat16",
            (),
            2 * 2 * 4 * 6 * 10 * 8,
            2 * (192 + 160 + 160 + 192),
        ),
        (
            "aten::_flash_attention_forward",
            [[1, 6, 4, 8], [1, 10, 2, 8], [1, 10, 2, 8]],
            "c10::BFloat16",
            (),
            2 * 2 * 4 * 6 * 10 * 8,
            2 * (192 + 160 + 160 + 192),
        ),
        ("aten::mul", [[4, 1], [1, 5]], "float", (), 20, 4 * (4 + 5 + 20)),
        ("aten::native_dropout", [[4, 5], [], []], "float", ("", "0.1", "True"), 20, 4 * 40 + 20),
        ("aten::eq", [[4, 1], [1, 5]], "long int", (), 20, 8 * (4 + 5) + 20),
        ("aten::sum", [[4, 5, 6], [], [], []], "float", ("", "[0, 2]", "False", ""), 120, 4 * (120 + 5)),
        ("aten::sum", [[4, 5, 6], []], "float", ("", ""), 120, 4 * (120 + 1)),
        (
            "aten::native_layer_norm",
            [[4, 8], [], [8], [8], []],
            "float",
            ("", "[8]", "", "", "1e-5"),
            8 * 32,
            4 * (32 + 8 + 8 + 32),
        ),
        ("aten::copy_", [[4, 5], [4, 5], []], "float", (), 0, 4 * 40),
        (
            "aten::embedding_dense_backward",
            [[3, 8], [3], [], [], []],
            "float",
            ("", "", "50", "-1", "False"),
            24,
            4 * (24 + 3 + 50 * 8),
        ),
        ("aten::mkldnn_rnn_layer", [[7, 2, 5], [12, 5], [12, 3], [12], [12]], "float", (), 2 * 14 * (60 + 36), None),
        # Packed sequences: 9 time steps of all sequences; the backward does it for the data and for the weights.
        ("aten::_cudnn_rnn", [[9, 5], [[12, 5], [12, 3], [12], [12]]], "float", (), 2 * 9 * (60 + 36), None),
        (
            "aten::_cudnn_rnn_backward",
            [[7, 2, 5], [[12, 5], [12, 3], [12], [12]], *[[]] * 20],
            "float",
            (),
            2 * 2 * 14 * (60 + 36),
            None,
        ),
        (
            "aten::_cudnn_rnn_backward",
            [[7, 2, 5], [[12, 5], [12, 3], [12], [12]], *[[]] * 20],
            "float",
            (*[""] * 21, "[False, False, False, False]"),
            2 * 14 * (60 + 36),
            None,
        ),
        (
            "aten::miopen_rnn_backward",
            [[7, 2, 5], [[12, 5], [12, 3]], *[[]] * 19],
            "float",
            (*[""] * 20, "[True, True, True, True]"),
            2 * 2 * 14 * (60 + 36),
            None,
        ),
        (
            "aten::mkldnn_rnn_layer_backward",
            [[7, 2, 5], [12, 5], [12, 3], [12], [12]],
            "float",
            (),
            2 * 2 * 14 * (60 + 36),
            None,
        ),
        # Reads gradient, input, mean, rstd, weight and bias; writes the gradients of input, weight and bias.
        (
            "aten::native_layer_norm_backward",
            [[4, 8], [4, 8], [], [4, 1], [4, 1], [8], [8], []],
            "float",
            ("", "", "[8]", "", "", "", "", "[True, True, True]"),
            13 * 32,
            4 * (2 * 32 + 4 + 4 + 8 + 8 + 32 + 8 + 8),
        ),
        (
            "aten::native_layer_norm_backward",
            [[4, 8], [4, 8], [], [4, 1], [4, 1], [8], [8], []],
            "float",
            ("", "", "[8]", "", "", "", "", "[False, True, False]"),
            13 * 32,
            4 * (2 * 32 + 4 + 4 + 8 + 8 + 8),
        ),
        # Without a weight there is only the gradient of the input.
        (
            "aten::native_layer_norm_backward",
            [[4, 8], [4, 8], [], [4, 1], [4, 1], [], [], []],
            "float",
            (),
            13 * 32,
            4 * (2 * 32 + 4 + 4 + 32),
        ),
        (
            "aten::native_group_norm_backward",
            [[2, 6, 5], [2, 6, 5], [2, 3], [2, 3], [6], *[[]] * 5],
            "float",
            (),
            13 * 60,
            4 * (2 * 60 + 6 + 6 + 6 + 60 + 6 + 6),
        ),
        (
            "aten::_fused_rms_norm_backward",
            [[4, 8], [4, 8], [], [4, 1], [8], []],
            "float",
            (),
            13 * 32,
            4 * (2 * 32 + 4 + 8 + 32 + 8),
        ),
    ],
)
def test_work_by_hand(
    name: str, shapes: list[Any], type: str, values: tuple[str, ...], flops: int, bytes: int | None
) -> None:
    result = work(name, shapes, type, *values)
    assert result is not None
    assert result.flops == flops
    assert result.bytes == bytes or (bytes is None and result.bytes != result.bytes)


def test_work_that_is_not_recorded_is_unknown_instead_of_zero() -> None:
    x, weight = [2, 4, 9], [6, 2, 3]
    assert work("aten::convolution", [x, weight, [], [], [], [], [], [], []], "float") is None  # no stride
    assert work("aten::convolution_backward", [[2, 6, 5], x, weight, *[[]] * 8], "float") is None  # which gradients?
    assert work("aten::mm", [[2, 3], [4, 5]], "float") is None
    assert work("aten::mm", [], "float") is None
    assert work("aten::_cudnn_rnn", [[7, 2, 5], [], [], [1, 2, 3]], "float") is None  # which weights?
    assert work("aten::sum", [[4, 5], [], [], []], "float") is None  # over which dimensions?
    assert work("aten::_foreach_add_", [[[2], [3]]], "TensorList") is None
    result = call_work(torch_call("aten::mm", "[[2,3],[3,5]]", "", ""))
    assert result is not None
    assert result.flops == 60
    assert result.bytes != result.bytes  # the type is unknown


@pytest.mark.parametrize(
    "dims", ["5", "[5]", '["ab", [2]]', "[[2, [3]], [[3], 5]]", "[[2.5, 3], [3, 5]]", "{}", "[null]"]
)
def test_invalid_shapes_are_unknown(write: Write, dims: str) -> None:
    """Shapes of a file that was edited, or written by another tool."""
    names = ("aten::mm", "aten::cudnn_convolution", "aten::cudnn_convolution_backward_input", "aten::sum")
    events = [operator(name, 20 * i, 10, [], "float") for i, name in enumerate(names)]
    for event in events:
        event["args"] |= {
            "Input Dims": json.loads(dims),
            "Input type": ["float", "float"],
            "Concrete Inputs": [1, None],
        }
    good = operator("aten::mm", 900, 10, [[2, 3], [3, 5]])
    result = table(answer("roofline", write([*events, good])))
    assert [row["flops"] for row in result if row["family"] != "unknown"] == [60]
    assert sorted(row["name"] for row in result if row["flops"] is None) == sorted(names)


def test_nested_operators_count_once(write: Write) -> None:
    shapes = [[2, 4, 9], [6, 2, 3], *[[]] * 7]
    values = ("", "", "", "[2]", "[1]", "[1]", "False", "[0]", "2")
    cudnn = ("", "", "[1]", "[2]", "[1]", "2", "False", "False", "True")
    events = [
        operator("aten::convolution", 100, 90, shapes, "float", *values),
        operator("aten::_convolution", 110, 70, [*shapes, *[[]] * 4], "float", *values, *("False",) * 4),
        operator("aten::cudnn_convolution", 120, 50, shapes, "float", *cudnn),
    ]
    (row,) = table(answer("roofline", write(events)))
    assert (row["name"], row["calls"], row["flops"], row["total_ns"]) == (
        "aten::convolution",
        1,
        2 * 2 * 5 * 36,
        90_000,
    )


def test_torch_1_9_records_weights_around_gradients_only_and_no_stride(write: Write) -> None:
    """The gradient has the output's shape, 2 x 6 x 5, so the stride of the forward is not needed."""
    x, weight, grad = [2, 4, 9], [6, 4, 3], [2, 6, 5]
    events = [
        operator("aten::cudnn_convolution", 0, 10, [x, weight, *[[]] * 6]),
        operator("aten::cudnn_convolution_backward", 20, 50, [x, grad, weight, *[[]] * 8]),
        operator("aten::cudnn_convolution_backward_input", 21, 20, [[], grad, weight, *[[]] * 7]),
        operator("aten::cudnn_convolution_backward_weight", 45, 20, [[], grad, x, *[[]] * 7]),
        operator("aten::cudnn_convolution", 80, 10, [[2, 4, 99], weight, *[[]] * 6]),  # no gradient with this shape
    ]
    rows = table(answer("roofline", write(events)))
    assert [row["name"] for row in rows if row["family"] == "unknown"] == ["aten::cudnn_convolution"]
    result = {row["name"]: row for row in rows if row["family"] != "unknown"}
    assert {name: (row["calls"], row["flops"]) for name, row in result.items()} == {
        "aten::cudnn_convolution": (1, 2 * 2 * 5 * 72),
        "aten::cudnn_convolution_backward_input": (1, 2 * 2 * 5 * 72),
        "aten::cudnn_convolution_backward_weight": (1, 2 * 2 * 5 * 72),
    }


def roofline_of_a_step(write: Write) -> dict[str, Any]:
    """Return the answer for a step of 200 us on an H200: 989.4 TFLOP/s of bfloat16, 66.9 of other types, 4.8 TB/s.

    - A product of 4,096^3: 137,438,953,472 FLOP, 138.9 us at the peak, takes 150 us.
    - An addition of 4,096^2 in bfloat16: 3 x 33.5 MB, 20.97 us at the peak, takes 30 us.
    - A product of 8^3 takes 4 us.
    - A kernel of an unknown operator takes 10 us.
    """
    half = "c10::BFloat16"
    events = [
        step(0, 0, 200),
        operator("aten::mm", 1, 4, [[4096, 4096], [4096, 4096]], half),
        launch(2, 1),
        kernel(6, 150, 1),
        operator("aten::add", 11, 4, [[4096, 4096], [4096, 4096], []], half),
        launch(12, 2),
        kernel(156, 30, 2),
        operator("aten::mm", 21, 4, [[8, 8], [8, 8]], half),
        launch(22, 3),
        kernel(186, 4, 3),
        host("cpu_op", "mine::op", 31, 4),
        launch(32, 4),
        kernel(190, 10, 4),
    ]
    return answer("roofline", write(events, deviceProperties=[H200]))


def test_share_of_the_roof_that_operators_achieve(write: Write) -> None:
    result = roofline_of_a_step(write)
    large, add, unknown, small = table(result)
    assert (large["bound"], add["bound"], unknown["bound"], small["bound"]) == (
        "compute",
        "memory",
        "unknown",
        "latency",
    )
    peak = 132 * 4096 * 1.83e9
    assert large["of_roof"] == pytest.approx(2 * 4096**3 / peak / 150e-6)
    assert large["intensity"] == pytest.approx(4096 / 3)
    assert add["of_roof"] == pytest.approx(3 * 2 * 4096**2 / 4.8e12 / 30e-6)
    assert add["bandwidth"] == pytest.approx(3 * 2 * 4096**2 / 30e-6)
    assert (large["kernel"], large["kernels"]) == ("k", 1)
    assert (unknown["flops"], unknown["bytes"], unknown["of_roof"], unknown["total_ns"]) == (None, None, None, 10_000)
    assert result["placed_ratio"] == pytest.approx(184 / 194)
    assert result["mfu"] == pytest.approx((2 * 4096**3 + 2 * 8**3) / peak / 200e-6)
    assert (result["device"], result["units"], result["clock_mhz"], result["bandwidth"]) == (
        "NVIDIA H200",
        132,
        1830,
        4.8e12,
    )


def test_a_bus_copy_is_not_compared_with_the_memory_bandwidth(write: Write) -> None:
    copy = {**kernel(20, 100, 1, "Memcpy HtoD (Pageable -> Device)"), "cat": "gpu_memcpy"}
    shapes = [[1000, 1000], [1000, 1000], []]
    events = [
        operator("aten::copy_", 0, 10, shapes),
        launch(2, 1),
        copy,
        operator("aten::mm", 11, 5, shapes[:2]),
        launch(12, 2),
        kernel(130, 50, 2),
    ]
    result = answer("roofline", write(events, deviceProperties=[H200]))
    assert {row["name"]: row["bound"] for row in table(result)} == {"aten::copy_": "unknown", "aten::mm": "compute"}
    assert result["placed_ratio"] == 1.0


def test_without_a_known_device_there_is_no_roof(write: Write) -> None:
    result = answer("roofline", write([operator("aten::mm", 0, 10, [[8, 8], [8, 8]])], deviceProperties=[]))
    (row,) = table(result)
    assert (row["bound"], row["of_roof"], row["flop_rate"]) == ("unknown", None, 1024 / 10e-6)
    assert (result["device"], result["mfu"], result["bandwidth"]) == (None, None, None)
    assert result["peaks"]["columns"]["precision"] == []


def test_a_scalar_does_not_widen_a_tensor(write: Write) -> None:
    """`x * 0.9` of 1000 fp32 values reads and writes 4000 bytes, plus 8 bytes of the number."""
    event = host("cpu_op", "aten::mul", 0, 10)
    event["args"] = {"Input Dims": [[1000], []], "Input type": ["float", "double"]}
    (row,) = table(answer("roofline", write([event], deviceProperties=[])))
    assert (row["precision"], row["bytes"], row["flops"]) == ("fp32", 8008, 1000)


def test_a_measured_peak_is_the_roof_of_a_processor(write: Write) -> None:
    """A product of 512 x 512 x 512 has 268.4 MFLO; in 10 ms that is 26.8 of 100 GFLO/s. Its 3 MiB at
    10 GB/s take 0.31 of the 2.7 ms at the roof.
    """
    shapes = [[512, 512], [512, 512]]
    file = write(
        [operator("aten::mm", 0, 10_000, shapes), operator("aten::add", 10_000, 100, shapes)], deviceProperties=[]
    )
    result = answer("roofline", file, peak="100e9", bandwidth="10e9")
    rows = {row["name"]: row for row in table(result)}
    assert rows["aten::mm"]["bound"] == "compute"
    assert rows["aten::mm"]["of_roof"] == pytest.approx(2 * 512**3 / 100e9 / 10e-3)
    assert rows["aten::add"]["bound"] == "memory"
    assert (result["source"], result["device"], result["units"], result["bandwidth"]) == ("measured", None, None, 10e9)
    assert result["mfu"] == pytest.approx(2 * 512**3 / 100e9 / 10.1e-3)
    without_bandwidth = answer("roofline", file, peak="100e9")
    assert without_bandwidth["mfu"] == result["mfu"]
    assert {row["bound"] for row in table(without_bandwidth)} == {"unknown"}


@pytest.mark.parametrize(
    ("name", "memory", "type", "tflops", "gb_s"),
    [
        ("Tesla V100-SXM2-32GB", 34, "fp16", 125, 900),
        ("Tesla T4", 16, "fp16", 65, 320),
        ("NVIDIA A100-SXM4-40GB", 42, "bf16", 312, 1555),
        ("NVIDIA A100 80GB PCIe", 85, "tf32", 156, 1935),
        ("NVIDIA A100-SXM4-80GB", 85, "fp64", 19.5, 2039),
        ("NVIDIA H100 80GB HBM3", 85, "bf16", 989, 3350),
        ("NVIDIA H100 80GB HBM3", 85, "fp32", 67, 3350),
        ("NVIDIA H100 PCIe", 85, "fp16", 756, 2039),
        ("NVIDIA H200", 150, "fp8", 1979, 4800),
        ("NVIDIA B200", 191, "bf16", 2250, 8000),
        ("NVIDIA L4", 24, "fp16", 121, 300),
        ("NVIDIA L40S", 48, "fp16", 366, 864),
        ("NVIDIA GeForce RTX 3090", 25, "fp16", 71, 936),
        ("NVIDIA GeForce RTX 4090", 25, "fp16", 165, 1008),
        ("NVIDIA GeForce RTX 5090", 34, "fp32", 104.8, 1792),
        ("AMD Instinct MI210", 68, "fp16", 181, 1638),
        ("AMD Instinct MI300X", 206, "fp16", 1307, 5300),
        ("AMD Instinct MI355X", 309, "bf16", 2517, 8000),
    ],
)
def test_peaks_equal_those_of_the_data_sheets(name: str, memory: int, type: str, tflops: float, gb_s: float) -> None:
    """Dense TFLOP/s of data sheets and architecture papers."""
    peak = find_peak(name, memory * 10**9)
    assert peak is not None
    assert peak.flops[type] / 1e12 == pytest.approx(tflops, rel=0.005)
    assert peak.bandwidth == gb_s * 1e9


def test_unknown_devices_have_no_peak() -> None:
    for name in (
        "",
        "AMD Radeon Graphics",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H200 NVL",
        "NVIDIA A10G",
        "NVIDIA L40",
    ):
        assert find_peak(name, 80 * 10**9) is None
    partition = find_peak("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 5 * 10**9, multiprocessors=14)
    assert partition is not None
    assert (partition.flops["fp16"], partition.bandwidth) == (14 * 2048 * 1.41e9, None)


def test_onnx_runtime_records_outputs_but_no_constants() -> None:
    """A product of 2 x 64 tokens of 256 values times 256 x 128 has 2 x 2 x 64 x 128 x 256 = 8,388,608 FLOP.

    With the constant, which the profile does not contain, it moves 4 x (2 x 64 x 256 + 256 x 128 +
    2 x 64 x 128) = 327,680 bytes. There are 5 runs.
    """
    result = table(answer("roofline", SAMPLES / "onnxruntime-cpu" / "tinybert_2026-11-20_03-40-11.json.gz"))
    (row,) = [row for row in result if row["name"] == "/encoder/layer.0/output/MatMul"]
    assert (row["calls"], row["flops"], row["bytes"]) == (5, 5 * 8_388_608, 5 * 327_680)
    call = onnx_call("MatMul", "float[256,2]", "float[128,2]", 100.0)
    assert call_work(call) is None  # the constant is the first factor
    call = onnx_call("Conv", "float[1,3,8,8]", "float[1,16,6,6]", 100.0)
    assert call_work(call) is None
    recorded_work = call_work(onnx_call("Conv", "float[1,3,8,8] float[16,3,3,3]", "float[1,16,6,6]", 100.0))
    assert recorded_work is not None
    assert (recorded_work.flops, recorded_work.bytes) == (2 * 16 * 36 * 27, 100.0)


def test_resnet50_has_the_operations_of_its_papers() -> None:
    """4.09 G multiply-adds per image forward, and twice that backward except for the input of the
    first convolution, 0.118.

    2 x (3 x 4.09 - 0.118) = 24.3 GFLOP, in 6 steps of 32 images. torch 1.9 recorded neither strides
    nor groups.
    """
    file = recording_path("traces/kineto/tb_plugin/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz")
    result = answer("roofline", file)
    assert result["model_flops"] / result["steps"] / 32 == pytest.approx(24.30e9, rel=0.001)
    assert result["placed_ratio"] > 0.98
    assert result["mfu"] == pytest.approx(0.2795, abs=0.0005)


def test_the_samples_of_an_h200() -> None:
    result = answer("roofline", SAMPLES / "pytorch-h200" / "transformer.pt.trace.json.gz")
    products = [row for row in table(result) if row["name"] == "aten::mm"]
    assert {row["precision"] for row in products} == {"bf16"}
    assert all(0 < row["of_roof"] < 1 for row in products)
    fp32 = answer("roofline", SAMPLES / "pytorch-h200" / "cnn.pt.trace.json.gz")
    # cuDNN uses tensor cores for fp32 if the channels fit, but not for the three channels of the image.
    assert {row["precision"] for row in table(fp32) if row["family"] == "convolution"} == {"tf32", "fp32"}


@pytest.mark.parametrize(
    ("file", "device", "expected"),
    [
        ("h100_qwen05b", "NVIDIA H100 80GB HBM3", {"aten::mm": (96, 6668.68), "aten::mul": (220, 6752.90)}),
        ("mi300_qwen05b", "AMD Instinct MI300X VF", {}),
        ("h100_vit", "NVIDIA H100 80GB HBM3", {"aten::addmm": (73, 735.04), "aten::native_layer_norm": (25, 111.20)}),
    ],
)
def test_calls_and_times_equal_those_of_tracelens(
    file: str, device: str, expected: dict[str, tuple[int, float]]
) -> None:
    """Compare with TraceLens's reference reports.

    Both vendors' runs of one script do the same work: 16 x 559 tokens in 24 layers of 1,024 values,
    16 heads of 64 and 2,816 between two products, and one product of 32 by 559 for the positions.
    ROCm's device 2 is device 0 of the file.
    """
    result = answer("roofline", recording_path(f"traces/tracelens/{file}.json.gz"))
    assert result["device"] == device
    for name, (calls, time_us) in expected.items():
        matching = [row for row in table(result) if row["name"] == name]
        assert sum(row["calls"] for row in matching) == calls
        assert sum(row["total_ns"] for row in matching) / 1000 == pytest.approx(time_us, abs=0.01)
        assert all(0 < row["of_roof"] < 1 for row in matching if row["family"] == "product")
    if file.endswith("qwen05b"):
        tokens = 16 * 559
        layer = 2 * tokens * 1024 * (4 * 1024 + 3 * 2816) + 2 * 2 * 16 * 16 * 559**2 * 64
        assert result["model_flops"] == 24 * layer + 2 * 32 * 559


def test_a_gemm_with_a_bias_has_the_bytes_of_its_packed_weight() -> None:
    """4 x 512 values times 512 x 1,024, plus 1,024: the weight has 524,288 values, in every form of the addend."""
    for bias in ("float[1024]", "float[1,1024]", "float[4,1024]", "float[]"):
        result = call_work(onnx_call("Gemm", f"float[4,512] {bias}", "float[4,1024]", 28_672.0))
        assert result is not None
        addend = {"float[1024]": 1024, "float[1,1024]": 1024, "float[4,1024]": 4096, "float[]": 1}[bias]
        assert (result.flops, result.bytes) == (2 * 4 * 512 * 1024, 4 * (4 * 512 + addend + 512 * 1024 + 4 * 1024))
    for weight in ("float[1024,512]", "float[512,1024]"):  # recorded, as on a GPU
        result = call_work(onnx_call("Gemm", f"float[4,512] {weight} float[1024]", "float[4,1024]", 0.0))
        assert result is not None
        assert result.bytes == 4 * (4 * 512 + 1024 + 512 * 1024 + 4 * 1024)
    square = call_work(onnx_call("Gemm", "float[512,512] float[512,64]", "float[512,64]", 0.0))
    assert square is not None
    assert square.bytes != square.bytes  # the weight, or something to add to the product with a packed weight


def test_operators_without_a_formula_are_listed_on_the_host(write: Write) -> None:
    """`mine::op` takes 50 us, 10 of them in a product and 5 in an allocation; torch's own wrappers do nothing."""
    events = [
        operator("aten::linear", 0, 30, [[8, 8], [8, 8]]),
        operator("aten::mm", 5, 20, [[8, 8], [8, 8]]),
        host("cpu_op", "mine::op", 100, 50),
        operator("aten::mm", 110, 10, [[8, 8], [8, 8]]),
        host("cpu_op", "aten::empty", 130, 5),
        host("cpu_op", "aten::sort", 200, 20),
        host("cpu_op", "aten::empty", 205, 5),
    ]
    result = answer("roofline", write(events, deviceProperties=[]))
    values_by_name = {row["name"]: (row["calls"], row["total_ns"], row["flops"]) for row in table(result)}
    assert values_by_name == {
        "mine::op": (1, 35_000, None),
        "aten::mm": (2, 30_000, 2048),
        "aten::sort": (1, 15_000, None),
    }
    assert result["placed_ratio"] == pytest.approx(30 / 100)


def test_totals_that_miss_work_say_at_least(write: Write) -> None:
    known = operator("aten::mm", 0, 30, [[8, 8], [8, 8]])
    sort, unknown = host("cpu_op", "aten::sort", 50, 20), host("cpu_op", "mine::op", 100, 20)
    shapeless = host("cpu_op", "aten::addmm", 150, 20)
    cases = [((), False), ((sort,), False), ((unknown,), True), ((shapeless,), True)]
    for i, (others, at_least) in enumerate(cases):
        assert answer("roofline", write([known, *others], f"{i}.json", deviceProperties=[]))["at_least"] is at_least
    assert roofline_of_a_step(write)["at_least"]  # a kernel of an unknown operator
    outside = [step(0, 0, 200), known, launch(40, 1), kernel(50, 10, 1, "my_gemm")]
    assert answer("roofline", write(outside, "outside.json", deviceProperties=[H200]))["at_least"]


def test_work_of_public_cases() -> None:
    """A Gemm with a bias of 2,125,824 bytes per call, and a training step of an LSTM with an MFU of 0.51."""
    gemm = table(answer("roofline", recording_path("cases/numbers/gemm/profile.json")))
    assert {row["name"]: row["bytes"] / row["calls"] for row in gemm}["gemm_bias"] == 2_125_824
    lstm = answer("roofline", recording_path("cases/numbers/cuda/lstm_train.json"))
    forward = 2 * 50 * 64 * 2048 * (256 + 512)
    assert {row["name"]: row["flops"] for row in table(lstm)} == {
        "aten::_cudnn_rnn": forward,
        "aten::_cudnn_rnn_backward": 2 * forward,
    }
    assert (round(lstm["mfu"], 2), lstm["at_least"]) == (0.51, False)
