"""OpenVINO's counters: durations in the executor's order."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import FIXTURES, answer, rows
from tests.reader.test_formats import check_invariants
from tests.recordings import recording_path
from visualprof.errors import FormatError
from visualprof.reader import Trace, read_trace
from visualprof.reader.recognition import recognize
from visualprof.reader.source import Source

Write = Callable[[object], Path]

MODELS = ["resnet10_dynbatch", "tinybert_dynamo", "tinybert_scoped_dyn"]


def row(name: str, us: object, status: str = "EXECUTED", **more: object) -> dict[str, object]:
    return {
        "node_name": name,
        "node_type": "Add",
        "exec_type": "jit_avx512_f32",
        "status": status,
        "real_time_us": us,
        "cpu_time_us": us,
        **more,
    }


def envelope(*runs: object, graph: object = ()) -> dict[str, object]:
    return {
        "openvino": "2026.4.1",
        "model": "m.onnx",
        "batch": 2,
        "device": "CPU",
        "profiling_info": list(runs),
        "runtime_graph": list(graph) if isinstance(graph, (list, tuple)) else graph,
    }


@pytest.fixture
def file(tmp_path: Path) -> Write:
    def write(document: object) -> Path:
        path = tmp_path / "profile.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return write


def names(trace: Trace) -> list[str]:
    return [trace.strings[i] for i in trace.events.name]


def text_arg(trace: Trace, name: str) -> dict[str, str]:
    column = trace.args[name]
    return {names(trace)[e]: trace.strings[v] for e, v in zip(column.events, column.values, strict=True)}


@pytest.mark.parametrize("model", MODELS)
def test_the_sum_of_a_real_file_is_that_of_its_counters(model: str) -> None:
    path = recording_path(f"traces/openvino/openvino_{model}_b2.json")
    ran = [each for each in json.loads(path.read_text())["profiling_info"] if each["status"] == "EXECUTED"]
    trace = read_trace(path)
    check_invariants(trace)
    total = sum(each["real_time_us"] for each in ran) * 1000
    assert (len(trace.events), int(trace.events.dur.sum())) == (len(ran), total)
    assert trace.span_ns == (0, total)
    assert trace.steps.dur.tolist() == [total]


@pytest.mark.parametrize("model", MODELS)
def test_the_operator_view_adds_up_to_the_counters(model: str) -> None:
    path = recording_path(f"traces/openvino/openvino_{model}_b2.json")
    values_by_name: dict[str, int] = {}
    for entry in json.loads(path.read_text())["profiling_info"]:
        if entry["status"] == "EXECUTED":
            values_by_name[entry["node_name"]] = (
                values_by_name.get(entry["node_name"], 0) + entry["real_time_us"] * 1000
            )
    assert {name: ns for name, (ns,) in rows(answer("operator", path), "host_self_ns").items()} == values_by_name


def test_properties_of_an_operator_are_shown_with_it() -> None:
    trace = read_trace(recording_path("traces/openvino/openvino_resnet10_dynbatch_b2.json"))
    name = "/stem/stem.0/Conv/WithoutBiases"
    assert text_arg(trace, "type")[name] == "Convolution"
    assert text_arg(trace, "exec_type")[name] == "brgconv_avx512_bf16"
    assert text_arg(trace, "precision")[name] == "bf16"
    assert text_arg(trace, "layers")[name] == f"{name},/stem/stem.0/Conv,/stem/stem.2/Relu"
    assert (trace.meta.framework, trace.meta.properties["batch"]) == ("openvino", "2")


def test_operators_are_placed_end_to_end_in_execution_order(file: Write) -> None:
    graph = [{"name": "a", "execOrder": "2"}, {"name": "b", "execOrder": "0"}, {"name": "c", "execOrder": "1"}]
    trace = read_trace(file(envelope(row("a", 5), row("b", 3), row("unknown", 1), row("c", 2), graph=graph)))
    assert names(trace) == ["b", "unknown", "c", "a"]
    assert trace.events.ts.tolist() == [0, 3000, 4000, 6000]
    assert trace.events.dur.tolist() == [3000, 1000, 2000, 5000]


def test_without_a_runtime_graph_the_order_is_the_files(file: Write) -> None:
    assert names(read_trace(file(envelope(row("z", 5), row("a", 3))))) == ["z", "a"]


def test_operators_that_were_not_executed_are_dropped_and_counted(file: Write) -> None:
    document = envelope(row("a", 5), row("fused", 0, "NOT_RUN"), row("gone", 0, "OPTIMIZED_OUT"))
    trace = read_trace(file(document))
    assert names(trace) == ["a"]
    assert trace.meta.warnings[0].startswith("2 of 3 operators did not run on their own")
    assert "records durations, no start times" in trace.meta.warnings[1]


def test_several_runs_are_steps(file: Write) -> None:
    trace = read_trace(file(envelope([row("a", 5), row("b", 1)], [row("a", 7)])))
    assert trace.steps.ts.tolist() == [0, 6000]
    assert trace.steps.dur.tolist() == [6000, 7000]
    assert trace.events.step.tolist() == [0, 0, 1]


def test_the_detailed_counters_of_benchmark_app_are_read(file: Write) -> None:
    node = {
        "name": "conv",
        "node_type": "Convolution",
        "status": "Status.EXECUTED",
        "real_time": "0.010",
        "cpu_time": "0.008",
        "exec_type": "brgconv_avx512_bf16",
    }
    fused = node | {"name": "relu", "status": "Status.NOT_RUN", "real_time": "0.000"}
    document = {"report_type": "detailed", "detailed_performance": [{"nodes": [node, fused]}, {"nodes": [node]}]}
    trace = read_trace(file(document))
    assert (names(trace), trace.events.dur.tolist()) == (["conv", "conv"], [10_000, 10_000])
    assert trace.arg("cpu_ns", np.arange(2)).tolist() == [8000, 8000]
    assert len(trace.steps) == 2


def test_a_real_report_of_benchmark_app_is_read() -> None:
    path = FIXTURES / "evaluation" / "benchmark_detailed_counters_report.json"
    nodes = json.loads(path.read_text())["detailed_performance"][0]["nodes"]
    ran = [node for node in nodes if node["status"] == "Status.EXECUTED"]
    trace = read_trace(path)
    assert names(trace) == [each["name"] for each in ran]
    assert trace.events.dur.tolist() == [round(float(each["real_time"]) * 1e6) for each in ran]


def test_a_report_of_benchmark_app_as_csv_is_read(tmp_path: Path) -> None:
    header = "layerName;execStatus;layerType;execType;realTime (ms);cpuTime (ms);"
    run = [
        "conv;1;EXECUTED;Convolution;brgconv_avx512_f32;1.200;1.100;",  # the first field is a name with a semicolon
        "relu1;OPTIMIZED_OUT;ReLU;undef;0.000;0.000;",
        "fc;EXECUTED;FullyConnected;brgemm_avx512_f32;0.300;0.300;",
        "Total;;;;1.500;1.400;",
    ]
    path = tmp_path / "benchmark_detailed_counters_report.csv"
    path.write_text("\n".join([header, *run, "", header, *run]) + "\n")
    trace = read_trace(path)
    check_invariants(trace)
    assert trace.meta.format == "openvino"
    assert [trace.strings[i] for i in trace.events.name] == ["conv;1", "fc", "conv;1", "fc"]
    assert trace.events.dur.tolist() == [1_200_000, 300_000] * 2
    assert trace.steps.dur.tolist() == [1_500_000] * 2
    assert trace.args["cpu_ns"].values.tolist() == [1_100_000, 300_000] * 2


def test_the_csv_of_a_public_case_is_read() -> None:
    path = recording_path("cases/reports/39-openvino-csv/benchmark_detailed_counters_report.csv")
    times = rows(answer("operator", path), "host_self_ns")
    assert times == {"conv1": [1_200_000], "fc": [300_000]}


def test_the_format_is_recognized_by_content_under_any_name(file: Write, tmp_path: Path) -> None:
    data = file(envelope(row("a", 5))).read_bytes()
    (tmp_path / "unknown").write_bytes(data)
    assert recognize(Source(tmp_path / "unknown")).name == "openvino"
    assert names(read_trace(tmp_path / "unknown")) == ["a"]


@pytest.mark.parametrize(
    "value", [None, "x", -5, 1e300, [], {"a": 1}, True, "inf", "nan", 10**400], ids=lambda v: str(v)[:10]
)
def test_an_invalid_time_does_not_crash(file: Write, value: object) -> None:
    trace = read_trace(file(envelope(row("a", value), row("b", 1))))
    assert 0 <= int(trace.events.dur[0]) <= 10**15


def test_rows_and_graphs_of_other_types_are_ignored(file: Write) -> None:
    trace = read_trace(file(envelope(row("a", 1), 5, None, graph={"name": "a"})))
    assert names(trace) == ["a"]
    odd = envelope(row("a", 1, node_type=5, exec_type=None), graph=[{"name": "a", "execOrder": [1]}, 7])
    assert names(read_trace(file(odd))) == ["a"]


def test_a_truncated_file_is_reported(file: Write) -> None:
    with pytest.raises(FormatError, match="not whole counters of OpenVINO"):
        read_trace(file(json.dumps(envelope(row("a", 1)))[:-10]))


def test_a_file_without_operators_has_a_warning(file: Write) -> None:
    assert "the file has no events" in read_trace(file(envelope())).meta.warnings
