"""Recordings of captured graphs joined with their captures, worked by hand, and vLLM's own."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import json_of
from tests.graphs import LAYER, capture, joined, kernel, names_of, put, replay, span
from tests.recordings import recording_path
from visualprof.reader.cache import Cache, open_trace
from visualprof.reader.graph_capture.files import find_captures, recording_fingerprint
from visualprof.reader.graph_capture.matching import align
from visualprof.reader.logdir.scan import LogFile, examine, roots, walk
from visualprof.reader.trace import Trace, TrackKind
from visualprof.views import view
from visualprof.views.measure.launches.launch import launches

VLLM = "traces/tracelens/vllm_decode"


def of(trace: Trace) -> dict[str, Any]:
    chosen = view("captured")
    return json_of(chosen.compute(trace, chosen.parse({})))


def owners(trace: Trace) -> list[tuple[str, str | None]]:
    """Each kernel, in order of time, with its operator."""
    launch_rows, names = launches(trace), trace.events.name
    order = np.argsort(trace.events.ts[launch_rows.work], kind="stable")
    pairs = zip(launch_rows.work[order].tolist(), launch_rows.op[order].tolist(), strict=True)
    return [(trace.strings[names[work]], trace.strings[names[op]] if op >= 0 else None) for work, op in pairs]


def above(trace: Trace, row: int) -> list[str]:
    names: list[str] = []
    while row >= 0:
        names.append(trace.strings[trace.events.name[row]])
        row = int(trace.events.parent[row])
    return names


def test_kernels_belong_to_the_operators_that_launched_them_in_the_capture(tmp_path: Path) -> None:
    trace = joined(tmp_path, replay(names_of(2), batch=4), {"graph_capture_rank_0.json": capture(2, batch=4)})
    assert owners(trace) == [(ran, operator) for _ in range(2) for operator, ran in LAYER]
    launch_rows = launches(trace)
    last = int(launch_rows.op[np.argmax(trace.events.ts[launch_rows.work])])
    assert above(trace, last) == [
        "aten::add",
        "nn.Module: Layer_1",
        "capture_4_FULL",
        "hipGraphLaunch",
        "execute_4_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk9sqsq4sqsk9)",
    ]
    rows = np.array([last])
    assert trace.strings[int(trace.arg("input_shapes", rows)[0])] == "[[4, 1]]"
    assert trace.strings[int(trace.arg("call_stack", rows)[0])] == "nn.Module: Layer_1; model.py(7): forward"
    assert [one["name"] for one in [{"name": t.kind.name} for t in trace.tracks]] == ["THREAD", "STREAM", "GRAPH"]
    assert trace.meta.warnings == ()


def test_kernels_of_a_graph_without_a_capture_belong_to_the_modules_that_they_name(tmp_path: Path) -> None:
    """Kernels of 4 us: a layer of two, one without a module, then the first module again; in a second launch another
    module launches the same kernels."""
    paths = ["block.0.qkv", "block.0.qkv", None, "block.0.out", "block.0.qkv"]
    recording: list[dict[str, Any]] = []
    for number, prefix in enumerate(("", "draft.")):
        call, *work = replay(["k"] * 5, at=100 + 200 * number, correlation=number + 1)
        for event, path in zip(work, paths, strict=True):
            event["args"] |= {"module_fqn": prefix + path} if path else {}
        recording += [call, *work]
    trace = joined(tmp_path, recording, {})
    chosen = view("modules")
    columns = json_of(chosen.compute(trace, chosen.parse({})))["columns"]
    assert list(zip(*(columns[c] for c in ("name", "kind", "calls", "device_total_ns")), strict=True)) == [
        ("graph of 5 kernels", "annotation", 2, 40_000),
        ("graph of 5 kernels/block.0.qkv", "module", 2, 12_000),
        ("graph of 5 kernels/block.0.out", "module", 1, 4_000),
        ("graph of 5 kernels/draft.block.0.qkv", "module", 2, 12_000),
        ("graph of 5 kernels/draft.block.0.out", "module", 1, 4_000),
    ]
    inside = of(trace)["inside"]["columns"]
    assert sorted(zip(inside["source"], inside["calls"], strict=True)) == [
        ("annotation", 1),
        ("annotation", 1),
        ("annotation", 3),
        ("annotation", 3),
        ("none", 2),
    ]


def test_modules_of_the_public_case_of_annotated_kernels_have_their_times(tmp_path: Path) -> None:
    path = recording_path("cases/reports/50-graph-kernel-annotations/trace.json")
    trace = open_trace(path, cache=Cache(tmp_path))
    chosen = view("modules")
    columns = json_of(chosen.compute(trace, chosen.parse({})))["columns"]
    times = dict(zip(columns["name"], columns["device_total_ns"], strict=True))
    modules = ("layers.0.attention.wq", "layers.0.attention", "layers.0.feed_forward.w1", "layers.1.attention.wq")
    assert [times[f"graph of 4 kernels/{name}"] for name in modules] == [270_000] * 4


def test_an_operator_inside_lasts_from_its_first_kernel_to_its_last(tmp_path: Path) -> None:
    trace = joined(tmp_path, replay(names_of(2), at=100), {"a.json": capture(2)})
    track = next(t for t in trace.tracks if t.kind is TrackKind.GRAPH)
    rows = slice(track.first, track.first + track.count)
    names = [trace.strings[i] for i in trace.events.name[rows]]
    times = zip(names, trace.events.ts[rows].tolist(), trace.events.end[rows].tolist(), strict=True)
    spans = {name: (start // 1000, end // 1000) for name, start, end in times if name.startswith("nn")}
    assert spans == {"nn.Module: Layer_0": (115, 129), "nn.Module: Layer_1": (130, 144)}


def test_every_launch_of_a_graph_has_its_own(tmp_path: Path) -> None:
    recording = [event for i in range(5) for event in replay(names_of(3), at=100 + 200 * i, correlation=i + 1)]
    trace = joined(tmp_path, recording, {"a.json": capture(3)})
    assert [op for _, op in owners(trace)] == [operator for _ in range(15) for operator, _ in LAYER]
    assert len(set(launches(trace).op.tolist())) == 45
    answer = of(trace)
    assert (answer["launches"], answer["kernels"], answer["matched"]) == (5, 45, 45)


def test_pieces_alike_take_turns(tmp_path: Path) -> None:
    pieces = [event for i in range(3) for event in capture(1, at=1000 * i, layer=[(f"layer{i}", "k")] * 2)]
    recording = [event for i in range(6) for event in replay(["k", "k"], at=100 + 100 * i, correlation=i + 1)]
    trace = joined(tmp_path / "whole", recording, {"a.json": pieces})
    assert [op for _, op in owners(trace)[::2]] == ["layer0", "layer1", "layer2"] * 2
    short = joined(tmp_path / "short", recording[: 5 * 3], {"a.json": pieces})
    assert of(short)["columns"]["note"] == ["3 identical graphs match, so the graph is ambiguous"]


def test_whole_and_piecewise_graphs_of_a_batch_are_distinguished(tmp_path: Path) -> None:
    """vLLM's FULL_AND_PIECEWISE: decode is one graph, with prefill the attention runs between pieces of it."""
    pieces = [("qkv", "gemm"), ("out", "gemm"), ("norm", "rms")]
    captured = [event for i in range(2) for event in capture(1, at=1000 + 500 * i, layer=pieces[1:])]
    captured = [*capture(1, at=500, layer=pieces[:1]), *captured]
    step = "execute_8_context_1(sq5sk5sqsq25sqsk25)_generation_3(sq3sk9sqsq3sqsk9)"
    recording = [*replay(names_of(2), at=100, batch=8), span("user_annotation", step, 300, 390)]
    for i, names in enumerate((["gemm"], ["gemm", "rms"], ["gemm", "rms"])):
        at = 310 + 120 * i
        attention = span("cuda_runtime", "hipLaunchKernel", at + 60, 2, correlation=20 + i)
        recording += [*replay(names, at=at, correlation=10 + i), span("cpu_op", "attention", at + 55, 10), attention]
        recording.append(kernel("flash", at + 70, 9, 20 + i))
    whole = capture(2, batch=8)
    trace = joined(tmp_path, recording, {"graph_capture_rank_0.1.json": whole, "graph_capture_rank_0.2.json": captured})
    of_pieces = [
        ("gemm", "qkv"),
        *[("flash", "attention"), ("gemm", "out"), ("rms", "norm")] * 2,
        ("flash", "attention"),
    ]
    assert owners(trace) == [*[(ran, operator) for _ in range(2) for operator, ran in LAYER], *of_pieces]
    columns = of(trace)["columns"]
    assert sorted(zip(columns["match"], columns["launches"], columns["capture"], strict=True)) == [
        ("exact", 1, "graph_capture_rank_0.1.json"),
        ("exact", 3, "graph_capture_rank_0.2.json"),
    ]


@pytest.mark.parametrize("name", ["17.2-TP-{}-DECODE.trace.json", "dp0_pp0_tp0_rank{}.17.pt.trace.json"])
def test_every_rank_of_a_folder_takes_its_own_captures(tmp_path: Path, name: str) -> None:
    """As SGLang and vLLM call the recordings of two ranks."""
    for rank in (0, 1):
        layers = capture(2, batch=4, layer=[(f"{operator}_{rank}", ran) for operator, ran in LAYER])
        put(tmp_path / "capture_traces" / f"bs_4_rank{rank}.json", layers)
        put(tmp_path / name.format(rank), replay(names_of(2), batch=4))
    for rank in (0, 1):
        trace = open_trace(tmp_path / name.format(rank), cache=Cache(tmp_path / ".cache"))
        assert {op for _, op in owners(trace)} == {f"{operator}_{rank}" for operator, _ in LAYER}


def test_the_next_larger_batch_is_meant(tmp_path: Path) -> None:
    captures = {f"bs_{n}_rank0.json": capture(2, batch=n) for n in (2, 4, 8)}
    trace = joined(tmp_path, replay(names_of(2), batch=3), captures)
    assert of(trace)["columns"]["capture"] == ["bs_4_rank0.json"]
    alike = of(joined(tmp_path, replay(names_of(2)), captures))
    assert alike["columns"]["note"] == ["the captures of batches 2, 4, 8 match equally well; shapes are for 2"]


def test_sglangs_graphs_are_for_requests_and_vllms_for_tokens(tmp_path: Path) -> None:
    """Four requests with two tokens each, as drafted ones are checked; both write this text."""
    text = "execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq8sk80sqsq16sqsk160)"
    recording = [span("user_annotation", text, 95, 20), *replay(names_of(2))]
    sglang = of(joined(tmp_path / "sglang", recording, {"bs_4_rank0.json": capture(2, batch=4)}))
    assert (sglang["columns"]["match"], sglang["columns"]["note"]) == (["exact"], [None])
    vllm = of(joined(tmp_path / "vllm", recording, {"graph_capture_rank_0.json": capture(2, batch=4)}))
    assert vllm["columns"]["note"] == [
        "graph_capture_rank_0.json, capture_4_FULL: it was captured for a batch of 4, and the launch was for 8"
    ]


def test_a_smaller_batch_is_refused(tmp_path: Path) -> None:
    trace = joined(tmp_path, replay(names_of(2), batch=9), {"bs_4_rank0.json": capture(2, batch=4)})
    reason = "bs_4_rank0.json, capture_4_FULL: it was captured for a batch of 4, and the launch was for 9"
    assert of(trace)["columns"]["note"] == [reason]
    assert trace.meta.warnings == (f"graph launches without a capture that matches their kernels: 1; {reason}",)
    assert {op for _, op in owners(trace)} == {None}


def test_another_model_is_refused(tmp_path: Path) -> None:
    other = capture(2, layer=[("aten::mm", "other"), ("attention", "flash"), ("x", "y")])
    answer = of(joined(tmp_path, replay(names_of(2)), {"a.json": other}))
    assert answer["columns"]["note"] == ["a.json, a: 2 of its 6 kernels fit the 6 of the launch"]
    assert answer["matched"] == 0


def test_a_kernel_that_is_new_stays_unexplained(tmp_path: Path) -> None:
    names = names_of(8)
    trace = joined(tmp_path, replay([*names[:5], "new", *names[5:]]), {"a.json": capture(8)})
    owner_pairs = owners(trace)
    assert owner_pairs.pop(5) == ("new", None)
    assert owner_pairs == [(ran, operator) for _ in range(8) for operator, ran in LAYER]
    assert of(trace)["columns"]["match"] == ["partial"]
    unexplained = [
        n for n, s in zip(*(of(trace)["inside"]["columns"][k] for k in ("name", "source")), strict=True) if s == "none"
    ]
    assert unexplained == ["new"]


def test_streams_side_by_side_are_matched_by_name(tmp_path: Path) -> None:
    recording = [
        span("cuda_runtime", "cudaGraphLaunch", 0, 5, correlation=1),
        kernel("gemm", 10, 9, 1),
        kernel("add", 12, 3, 1, stream=20),
        kernel("flash", 20, 4, 1),
    ]
    trace = joined(tmp_path, recording, {"a.json": capture(1)})
    assert owners(trace) == [("gemm", "aten::mm"), ("add", "aten::add"), ("flash", "attention")]
    assert of(trace)["columns"]["match"] == ["reordered"]


def test_a_capture_without_names_is_matched_by_order_with_a_warning(tmp_path: Path) -> None:
    trace = joined(tmp_path, replay(names_of(3)), {"a.json": capture(3, named=False)})
    assert [op for _, op in owners(trace)] == [operator for _ in range(3) for operator, _ in LAYER]
    assert of(trace)["columns"]["match"] == ["unnamed"]
    assert of(trace)["columns"]["note"] == [
        "the capture does not name its kernels: they are matched by their order alone"
    ]


def test_a_capture_without_names_of_another_length_or_order_is_refused(tmp_path: Path) -> None:
    answer = of(joined(tmp_path / "longer", replay(names_of(3)), {"a.json": capture(4, named=False)}))
    assert answer["columns"]["note"] == [
        "a.json, a: it has 12 launches without the names of their kernels, the launch 9"
    ]
    mixed = ["gemm", "gemm", "flash", "add", "flash", "gemm", "add", "add", "flash"]
    answer = of(joined(tmp_path / "mixed", replay(mixed), {"a.json": capture(3, named=False)}))
    assert answer["columns"]["note"] == [
        "a.json, a: of its 9 kernels 4 come from other operators than most of their names"
    ]


def test_an_unnamed_capture_of_another_model_is_rejected(tmp_path: Path) -> None:
    """Every kernel comes from `aten::mm` then; that one operator with one shape ran three is what gives it away."""
    other = capture(4, batch=8, named=False, layer=[("aten::mm", "")] * 3)
    for event in other:
        if event["cat"] == "cpu_op":
            event["args"]["Input Dims"] = [[8, 8]]
    answer = of(joined(tmp_path, replay(names_of(4), batch=8), {"a.json": other}))
    assert answer["columns"]["note"] == [
        "a.json, capture_8_FULL: of its 12 kernels 8 differ from most others of an operator with the same shapes"
    ]


def test_an_uncertain_match_is_reported(tmp_path: Path) -> None:
    layers = names_of(8)
    layers[4] = "new"
    answer = of(joined(tmp_path / "partial", replay(layers), {"a.json": capture(8)}))
    assert (answer["columns"]["match"], answer["matched"]) == (["partial"], 23)
    assert answer["columns"]["note"] == ["1 of its kernels and 1 launches of the capture have no counterpart"]
    answer = of(joined(tmp_path / "large", replay(names_of(2), batch=3), {"a.json": capture(2, batch=512)}))
    assert answer["columns"]["note"] == [
        "it was captured for a batch of 512, and the launch was for 3: shapes may be too large"
    ]
    answer = of(joined(tmp_path / "next", replay(names_of(2), batch=3), {"a.json": capture(2, batch=6)}))
    assert answer["columns"]["note"] == [None]


def test_a_recording_may_hold_its_own_capture(tmp_path: Path) -> None:
    """As of a script that captures and replays within one profile; eager work beside it is not captured."""
    eager = [
        span("cpu_op", "aten::relu", 400, 20),
        span("cuda_runtime", "hipLaunchKernel", 405, 2, correlation=77),
        kernel("relu", 430, 5, 77),
    ]
    trace = joined(tmp_path, [*capture(2), *eager, *replay(names_of(2), at=500)], {})
    assert owners(trace) == [("relu", "aten::relu"), *[(ran, operator) for _ in range(2) for operator, ran in LAYER]]
    columns = of(trace)["columns"]
    assert (columns["match"], columns["capture"], trace.meta.warnings) == (["exact"], ["run.json"], ())
    other = joined(tmp_path / "other", [*capture(3), *replay(names_of(2), at=500)], {})
    assert of(other)["columns"]["note"] == ["run.json, run: it has 9 kernels, and the launch 6"]


def test_a_list_of_captures_is_not_a_capture(tmp_path: Path) -> None:
    details = tmp_path / "capture_traces" / "execution_details.json"
    details.parent.mkdir()
    details.write_text(json.dumps([{"file": "a.json", "batch_size": 2, "mode": "FULL"}]))
    trace = joined(tmp_path, replay(names_of(2)), {"a.json": capture(2)})
    assert trace.meta.warnings == ()
    assert [file.file for file in files(tmp_path) if examine(file).kind != "other"] == ["run.json"]


def test_launches_without_kernels_are_reported(tmp_path: Path) -> None:
    """A driver's call inside the runtime's is one launch with it, whichever has the kernels."""
    empty = span("cuda_runtime", "cudaGraphLaunch", 300, 5, correlation=9)
    driver = span("cuda_driver", "cuGraphLaunch", 102, 2, correlation=8)
    trace = joined(tmp_path / "one", [*replay(names_of(2)), driver, empty], {"a.json": capture(2)})
    assert trace.meta.warnings == ("1 graph launches have no kernels in the recording, so their work is unknown",)
    assert of(trace)["matched"] == 6
    alone = joined(tmp_path / "none", [empty], {})
    assert alone.meta.warnings == ("1 graph launches have no kernels in the recording, so their work is unknown",)
    assert not view("captured").needs(alone)


def test_a_copy_in_a_capture_is_not_a_kernel(tmp_path: Path) -> None:
    captured = capture(1, named=False)
    captured[2]["name"] = "cudaMemcpyAsync"
    answer = of(joined(tmp_path, replay(names_of(1)), {"a.json": captured}))
    assert answer["columns"]["note"] == ["a.json, a: its launch 1 is of a memcpy, where the graph has gemm"]


@pytest.mark.parametrize(
    ("damage", "warning"),
    [
        (lambda data: b"", "the capture a.json cannot be read: a.json is empty"),
        (lambda data: b"no json", "the capture a.json cannot be read: a.json: no profile format"),
        (lambda data: data[: len(data) * 2 // 3], "a.json: it ends in the middle"),
    ],
)
def test_a_damaged_capture_is_a_warning(tmp_path: Path, damage: Any, warning: str) -> None:
    file = put(tmp_path / "capture_traces" / "a.json", capture(3))
    file.write_bytes(damage(file.read_bytes()))
    trace = joined(tmp_path, replay(names_of(3)), {})
    assert any(warning_text.startswith(warning) for warning_text in trace.meta.warnings), trace.meta.warnings
    assert of(trace)["matched"] == 0
    assert warning in of(trace)["columns"]["note"][0]  # pages show it beside figures by operator


def test_without_a_capture_the_block_that_repeats_is_marked_and_owns_nothing(tmp_path: Path) -> None:
    trace = joined(tmp_path, replay(["embed", *names_of(4), "head"]), {})
    assert {op for _, op in owners(trace)} == {None}
    inside = of(trace)["inside"]["columns"]
    sources = dict(zip(inside["name"], zip(inside["source"], inside["within"], strict=True), strict=True))
    assert sources["gemm"] == ("repeats", "repeated block of 3 kernels")
    assert sources["embed"] == sources["head"] == ("none", "graph of 14 kernels")
    assert trace.meta.warnings == ()


@pytest.mark.parametrize("label", ["execute_", "execute_x_context", "step[DECODE bs=", "step[bs=99999999999999999999]"])
def test_malformed_annotations_give_no_batch(tmp_path: Path, label: str) -> None:
    recording = [span("user_annotation", label, 90, 40), *replay(names_of(2))]
    answer = of(joined(tmp_path, recording, {"a.json": capture(2, batch=4)}))
    assert answer["columns"]["match"] == ["exact"]


def files(folder: Path) -> list[LogFile]:
    return [file for file in walk(roots([folder])[0]) if isinstance(file, LogFile)]


def test_captures_are_not_runs_and_change_their_recording(tmp_path: Path) -> None:
    recording = put(tmp_path / "run" / "rank0.json", replay(names_of(2)))
    before = recording_fingerprint(recording)
    (first,) = files(tmp_path)
    for place in ("capture_traces/graph_capture_rank_0.1.pt.trace.json", "bs_2_rank0.json"):
        put(recording.parent / place, capture(2))
    (later,) = (file for file in files(tmp_path) if examine(file).kind != "other")
    assert later.file == first.file == "run/rank0.json"
    assert later.version != first.version
    (alone,) = files(recording.parent / "bs_2_rank0.json")  # what somebody opens by itself is shown
    assert examine(alone).kind == "profile"
    assert recording_fingerprint(recording) != before
    assert [file.name for file in find_captures(recording)] == ["bs_2_rank0.json"]  # the nearest
    assert find_captures(recording.parent / "bs_2_rank0.json") == []


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_an_alignment_is_the_longest_common_subsequence(wanted: list[str], names: list[str]) -> None:
    length = np.zeros((len(wanted) + 1, len(names) + 1), int)
    for i, a in enumerate(wanted):
        for j, b in enumerate(names):
            length[i + 1, j + 1] = length[i, j] + 1 if a == b else max(length[i, j + 1], length[i + 1, j])
    longest = int(length[-1, -1])
    found = align(wanted, names, len(wanted) + len(names))
    assert found is not None
    pairs = [(i, j) for i, j in enumerate(found) if j >= 0]
    assert len(pairs) == longest
    assert all(wanted[i] == names[j] for i, j in pairs)
    assert [j for _, j in pairs] == sorted({j for _, j in pairs})
    distance = len(wanted) + len(names) - 2 * longest
    assert distance == 0 or align(wanted, names, distance - 1) is None


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    """A copy of vLLM's decode step and its capture."""
    shutil.copytree(recording_path(VLLM), tmp_path / "run")
    return tmp_path / "run"


def opened(folder: Path) -> Trace:
    return open_trace(folder / "graph_execution.json.gz", cache=Cache(folder.parent / "cache"))


def test_vllms_decode_step_has_the_times_of_the_reference_report(vllm: Path) -> None:
    chosen = view("operator")
    answer = json_of(chosen.compute(opened(vllm), chosen.parse({})))
    columns = [answer["columns"][key] for key in ("name", "device_self_ns", "device_total_ns", "calls")]
    times = {name: (self_ns / 1000, total / 1000, calls) for name, self_ns, total, calls in zip(*columns, strict=True)}
    for name, direct, whole, calls in [
        ("vllm::moe_forward", 7171.53, 7666.46, 24),
        ("aten::addmm", 953.88, 953.88, 72),
        ("vllm::unified_attention_with_output", 724.36, 724.36, 24),
        ("SortTokens", 375.12, 375.12, 24),
        ("aiter::rmsnorm2d_fwd_with_add_ck", 326.04, 326.04, 48),
        ("triton_poi_fused__to_copy_1", 292.37, 292.37, 23),
        ("aten::mm", 276.68, 276.68, 1),
    ]:
        assert times[name] == (pytest.approx(direct, abs=0.02), pytest.approx(whole, abs=0.02), calls)
    assert answer["unlinked"] == {"kernels": 0, "total_ns": 0}


@pytest.mark.slow
def test_vllms_join_does_not_need_the_names(vllm: Path) -> None:
    """As on CUDA, where captures have none: the operators of each kernel are the same."""
    exact = owners(opened(vllm))
    file = next((vllm / "capture_traces").iterdir())
    document = json.loads(gzip.decompress(file.read_bytes()))
    for event in document["traceEvents"]:
        if event.get("cat") == "cuda_runtime":
            event["args"].pop("kernel", None)
    file.chmod(0o644)
    file.write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    unnamed = opened(vllm)
    assert of(unnamed)["columns"]["match"] == ["unnamed"]
    assert owners(unnamed) == exact


def test_an_incomplete_capture_is_reported_and_the_others_are_used(tmp_path: Path) -> None:
    begun = span("cuda_runtime", "hipStreamBeginCapture", -20, 1)
    trace = joined(tmp_path, replay(names_of(2)), {"a.json": [begun, *capture(2)]})
    assert trace.meta.warnings == ("a.json: the capture of a graph does not end in it",)
    assert of(trace)["matched"] == 6
