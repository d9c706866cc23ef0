"""Recordings of Ascend NPUs: a small one whose numbers are in `tests.ascend_files`, and real ones of AlexNet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ascend_files import BASE_US, GROUP, write_recording
from tests.conftest import json_of, rows, trace_of
from tests.reader.test_formats import check_invariants
from tests.recordings import recording_path
from visualprof.errors import FormatError
from visualprof.reader import Trace, read_trace
from visualprof.reader.ascend.names import group_hash, torch_shapes, torch_types
from visualprof.reader.ascend.tables import NO_TIME, integers, read_table, times_ns
from visualprof.reader.logdir.listing import scan_profiles
from visualprof.reader.trace import Category, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.views import run_view, view
from visualprof.views.measure.launches.device_work import work_by_device

FORMS = ("text", "database")
FILES = {"text": "trace_view.json.gz", "database": "ascend_pytorch_profiler_0.db"}


@pytest.fixture(scope="module", params=FORMS)
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Trace]:
    """The small recording in each form."""
    folder = write_recording(tmp_path_factory.mktemp("run"), request.param)
    return request.param, read_trace(folder / "ASCEND_PROFILER_OUTPUT" / FILES[request.param])


def answer_of(trace: Trace, name: str, **params: str) -> dict[str, Any]:
    """A view of a trace."""
    chosen = view(name)
    return json_of(chosen.compute(trace, chosen.parse(params)))


def texts(trace: Trace, name: str) -> list[str]:
    """The texts of an argument, in the order of the events."""
    return [trace.strings[i] for i in trace.args[name].values.tolist()]


def stream_time(trace: Trace, *categories: Category) -> int:
    """The time of events on streams."""
    selected = trace.track_mask(TrackKind.STREAM) & trace.events.category_mask(*categories)
    return int(trace.events.dur[selected].sum())


def test_both_forms_give_the_same_work(recording: tuple[str, Trace]) -> None:
    form, trace = recording
    check_invariants(trace)
    assert trace.meta.format == f"ascend-{form}"
    assert (trace.meta.device_type, trace.meta.rank, trace.meta.world_size) == ("npu", 0, 2)
    kernels = answer_of(trace, "kernel")
    assert rows(kernels, "calls", "total_ns") == {
        "hcom_allReduce__128_0_1": [1, 300_000],
        "MatMul_1": [1, 100_000],
        "Add_1": [1, 40_000],
    }
    copies = kernels["memory_operations"]["columns"]
    assert (copies["name"], copies["calls"], copies["total_ns"]) == (["MEMCPY_ASYNC"], [2], [15_000])
    assert stream_time(trace, Category.SYNC) == 350_000  # the wait of stream 3


def test_work_belongs_to_the_operator_that_queued_it(recording: tuple[str, Trace]) -> None:
    form, trace = recording
    times = rows(answer_of(trace, "operator"), "device_self_ns")
    assert times["aten::mm"] == [100_000]
    assert times["aten::add"] == [40_000]
    # The text draws an arrow to the first copy only, and its table of operators counts only that one.
    assert times["aten::copy_"] == [10_000 if form == "text" else 15_000]
    assert sum(total for (total,) in times.values()) == 450_000 + (0 if form == "text" else 5_000)


def test_a_step_is_split_into_computation_communication_and_overlap(recording: tuple[str, Trace]) -> None:
    _, trace = recording
    assert [trace.strings[i] for i in trace.steps.name] == ["3"]
    assert trace.steps.ts.tolist() == [BASE_US * 1000]
    step = answer_of(trace, "overview")["steps"]
    assert (step["total_ns"], step["kernel_ns"]) == ([1_000_000], [140_000])
    # Exposed from 240 to 520, without the copies from 330 to 345, which the overview counts first
    assert (step["memcpy_ns"], step["communication_ns"]) == ([15_000], [265_000])


def test_kernels_have_cores_types_and_pipelines(recording: tuple[str, Trace]) -> None:
    form, trace = recording
    assert texts(trace, "core") == ["AI_CORE", "AI_VECTOR_CORE"]
    assert texts(trace, "type") == ["MatMulV2", "TransData"]
    assert trace.args["mac_ratio"].values.tolist() == [0.5]
    assert trace.args["vec_ratio"].values.tolist() == [0.75]
    columns = rows(answer_of(trace, "kernel"), "core", "mac_ratio", "vec_ratio", "mte2_ratio")
    mte2 = {"text": (0.25, 0.5), "database": (None, None)}[form]
    assert columns["MatMul_1"] == ["AI_CORE", 0.5, None, mte2[0]]
    assert columns["Add_1"] == ["AI_VECTOR_CORE", None, 0.75, mte2[1]]
    assert columns["hcom_allReduce__128_0_1"] == [None, None, None, None]
    if form == "text":  # the database has no utilization, from which the number of cores follows
        assert trace.args["cube_utilization"].values.tolist() == [0.9]
        assert trace.args["blocks_per_sm"].values.tolist() == [24 / 24, 12 / 48]
        assert (trace.meta.devices[0].multiprocessors, trace.meta.devices[0].clock_mhz) == (24, 1800)


def test_a_collective_has_its_group_size_and_link(recording: tuple[str, Trace]) -> None:
    _, trace = recording
    assert texts(trace, "collective") == ["allReduce"]
    assert texts(trace, "group") == [GROUP]
    assert texts(trace, "dtype") == ["float32"]
    assert texts(trace, "link_type") == ["HCCS"]
    assert {n: trace.args[n].values.tolist() for n in ("elements_in", "group_seq", "link_bytes", "link_ns")} == {
        "elements_in": [3000],
        "group_seq": [0],
        "link_bytes": [3_000_000],
        "link_ns": [150_000],
    }
    # Plane 0 transfers for 50 us and never waits.
    assert [trace.args[n].values.tolist() for n in ("transit_ns", "notify_wait_ns")] == [[50_000], [0]]
    (group,) = trace.meta.groups
    assert (group.name, group.description, group.runs) == (GROUP, "dp", ((0, 1, 2),))


def test_the_links_of_collectives_are_a_table_of_the_distributed_view() -> None:
    """Totals of `communication.json`: GB/s is its bytes per time of all links."""
    folder = recording_path("traces/ascend/text/level1")
    chosen, files = run_view("distributed"), [folder / f"rank{i}_ascend_pt/ASCEND_PROFILER_OUTPUT" for i in (0, 1)]
    ranks = [(f"rank{i}", trace_of(file / FILES["text"])) for i, file in enumerate(files)]
    links = json_of(chosen.compute_from_traces(ranks, chosen.parse({})))["links"]["columns"]
    assert (links["rank"], links["name"], links["link"]) == ([0, 1], ["allReduce"] * 2, ["HCCS"] * 2)
    assert links["bytes"] == [427_596_096] * 2
    assert links["link_ns"] == pytest.approx([27_315_706, 27_583_971], abs=100)
    assert links["elapsed_ns"] == pytest.approx([105_991_876, 100_375_284], abs=100)
    assert links["transit_ns"][0] == pytest.approx(3_683_353, abs=100)
    assert links["wait_ns"][0] == pytest.approx(5_940_619, abs=100)
    assert links["idle_ns"][0] == pytest.approx(96_367_906, abs=100)
    assert links["bandwidth_bytes_per_s"][0] == pytest.approx(427.596096e6 / 27.315706e-3, rel=1e-5)


MATRIX = {
    "step3": {
        "p2p": {"send-total@7": {"0-1": {"Transport Type": "RDMA", "Transit Size(MB)": 2.0, "Transit Time(ms)": 0.0}}},
        "collective": {
            "allreduce-top1@3985310405473756128": {
                "0-1": {"Transport Type": "HCCS", "Transit Size(MB)": 9.0, "Transit Time(ms)": 9.0}
            },
            "allreduce-total@3985310405473756128": {
                "0-0": {"Transport Type": "LOCAL", "Transit Size(MB)": 4.0, "Transit Time(ms)": 0.01},
                "0-1": {"Transport Type": "HCCS", "Transit Size(MB)": 1.5, "Transit Time(ms)": 0.1},
                "bad": {"Transport Type": "HCCS", "Transit Size(MB)": 1.5, "Transit Time(ms)": 0.1},
            },
        },
    },
    "step4": {
        "collective": {
            "allreduce-total@3985310405473756128": {
                "0-1": {"Transport Type": "HCCS", "Transit Size(MB)": 1.5, "Transit Time(ms)": 0.2}
            }
        }
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_the_matrix_of_transfers_sums_steps_and_names_global_ranks(form: str, tmp_path: Path) -> None:
    output = write_recording(tmp_path, form) / "ASCEND_PROFILER_OUTPUT"
    (output / "communication_matrix.json").write_text(json.dumps(MATRIX))
    columns = transfers_of([read_trace(output / FILES[form])])
    # The members of the group with the hash 7 are unknown, so only ranks within the group are known.
    assert columns["name"] == ["send", "allreduce", "allreduce"]
    assert columns["group"] == ["7", GROUP, GROUP]
    assert columns["link"] == ["RDMA", "LOCAL", "HCCS"]
    assert list(zip(columns["source"], columns["destination"], strict=True)) == [(None, None), (0, 0), (0, 1)]
    assert list(zip(columns["group_source"], columns["group_destination"], strict=True)) == [(0, 1), (0, 0), (0, 1)]
    assert (columns["bytes"], columns["link_ns"]) == ([2_000_000, 4_000_000, 3_000_000], [0, 10_000, 300_000])
    assert columns["bandwidth_bytes_per_s"] == [None, pytest.approx(4e11), pytest.approx(1e10)]


def test_a_damaged_matrix_is_left_out_with_a_warning(tmp_path: Path) -> None:
    output = write_recording(tmp_path, "database") / "ASCEND_PROFILER_OUTPUT"
    (output / "analysis.db").write_bytes(b"no database" * 100)
    trace = read_trace(output / FILES["database"])
    assert trace.meta.transfers == ()
    assert [text.partition(" cannot")[0] for text in trace.meta.warnings] == ["analysis.db"]


def transfers_of(traces: list[Trace]) -> dict[str, Any]:
    """The table of transfers of a run."""
    chosen = run_view("distributed")
    ranks = [(f"rank{i}", trace) for i, trace in enumerate(traces)]
    return json_of(chosen.compute_from_traces(ranks, chosen.parse({})))["transfers"]["columns"]


@pytest.mark.parametrize("form", FORMS)
def test_transfers_of_real_recordings_equal_the_sum_of_the_tasks_of_collectives(form: str) -> None:
    """The matrix is `communication_matrix.json` or `analysis.db`; the tasks are in the timeline and the database."""
    place = "text" if form == "text" else "db"
    folder = recording_path(f"traces/ascend/{place}/level1")
    files = {"text": [FILES["text"]] * 2, "database": [f"ascend_pytorch_profiler_{i}.db" for i in (0, 1)]}[form]
    traces = [trace_of(folder / f"rank{i}_ascend_pt/ASCEND_PROFILER_OUTPUT/{name}") for i, name in enumerate(files)]
    columns = transfers_of(traces)
    for rank in (0, 1):
        cells = [i for i, number in enumerate(columns["rank"]) if number == rank]
        assert {columns["name"][i] for i in cells} == {"allreduce"}
        assert {columns["group_source"][i] for i in cells} == {rank}
        assert {columns["group_destination"][i] for i in cells} == set(range(8))
        hccs = [i for i in cells if columns["link"][i] == "HCCS"]
        args = traces[rank].args
        assert sum(columns["bytes"][i] for i in hccs) == args["link_bytes"].values.sum() == 427_596_096
        assert sum(columns["link_ns"][i] for i in hccs) == pytest.approx(args["link_ns"].values.sum(), abs=100)
        assert sum(columns["bytes"][i] for i in cells) == 488_806_752  # with the copies within the device


def test_memory_has_totals_of_the_framework_only(recording: tuple[str, Trace]) -> None:
    _, trace = recording
    allocs = trace.allocs
    assert allocs.bytes.tolist() == [512 << 10, 256 << 10, -(512 << 10)]
    assert allocs.allocated.tolist() == [3 << 19, -1, 1 << 20]
    assert trace.strings[trace.events.name[allocs.event[0]]] == "aten::mm"


def test_operators_have_shapes_types_and_stacks(recording: tuple[str, Trace]) -> None:
    _, trace = recording
    assert texts(trace, "input_shapes") == ["[[8, 8], [8, 8], []]"]
    assert texts(trace, "input_types") == ['["float", "float", "Scalar"]']
    (stack,) = texts(trace, "call_stack")
    assert [frame.strip() for frame in stack.split(";")] == ["model.py(3): forward", "train.py(9): main"]


def test_without_calls_of_cann_arrows_from_operators_are_launches(tmp_path: Path) -> None:
    folder = write_recording(tmp_path, "text", calls=False)
    trace = read_trace(folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json.gz")
    times = rows(answer_of(trace, "operator"), "device_self_ns")
    assert (times["aten::mm"], times["aten::add"], times["aten::copy_"]) == ([100_000], [40_000], [10_000])


def test_a_folder_is_one_worker_and_its_name_says_run_and_rank(tmp_path: Path) -> None:
    write_recording(tmp_path / "job", "text", "database", worker="node_4711_20250109093804123")
    write_recording(tmp_path / "job", "text", rank=1, worker="rank1")
    (tmp_path / "job" / "rank1_ascend_pt" / "PROF_1_2_AB" / "mindstudio_profiler_output").mkdir(parents=True)
    raw = tmp_path / "job" / "rank1_ascend_pt" / "PROF_1_2_AB" / "mindstudio_profiler_output" / "msprof_1.json"
    raw.write_text('[{"ph": "X", "name": "AscendCL@a", "ts": "1.000", "dur": 1, "pid": 1, "tid": 1}]')
    listing = scan_profiles([tmp_path])
    assert [run.id for run in listing.runs] == ["job"]
    spans = [
        (worker.id, [(span.id, span.log_file.name) for span in worker.spans]) for worker in listing.runs[0].workers
    ]
    assert spans == [
        ("rank1", [("1", "trace_view.json.gz")]),
        ("node_4711", [("20250109093804123", "ascend_pytorch_profiler_0.db")]),
    ]
    assert listing.skipped == ()


def test_a_damaged_neighbor_is_left_out_with_a_warning(tmp_path: Path) -> None:
    folder = write_recording(tmp_path, "text")
    (folder / "profiler_metadata.json").write_text("{")
    (folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").write_text('Name,Type\n"a')
    trace = read_trace(folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json.gz")
    assert len(answer_of(trace, "kernel")["columns"]["name"]) == 3
    assert [text.partition(" cannot")[0] for text in trace.meta.warnings] == [
        "profiler_metadata.json",
        "kernel_details.csv",
    ]


def test_a_truncated_database_is_an_error_that_names_it(tmp_path: Path) -> None:
    folder = write_recording(tmp_path, "database")
    file = folder / "ASCEND_PROFILER_OUTPUT" / "ascend_pytorch_profiler_0.db"
    file.write_bytes(file.read_bytes()[:8192])
    with pytest.raises(FormatError, match=r"ascend_pytorch_profiler_0\.db: no whole database"):
        read_trace(file)


def test_a_table_without_quotes_is_read_like_one_with_quotes(tmp_path: Path) -> None:
    rows_of_file = ["Name, Start Time(us),Size(KB)", "a,1736408883573957.920\t,1.5", "b,12.000,N/A", "c,3.000\t,"]
    (tmp_path / "plain.csv").write_text("\r\n".join(rows_of_file) + "\r\n", newline="")
    quoted = [*rows_of_file[:1], *(f'"{line[0]}"{line[1:]}' for line in rows_of_file[1:])]
    (tmp_path / "quoted.csv").write_text("\n".join(quoted), newline="")
    tables = [read_table(tmp_path, name, TraceBuilder("x")) for name in ("plain.csv", "quoted.csv")]
    plain, other = ({name: list(values) for name, values in table.items()} for table in tables)
    assert plain == other
    assert times_ns(plain["Start Time(us)"]).tolist() == [1_736_408_883_573_957_920, 12_000, 3_000]
    assert times_ns(["1.000", ""]).tolist() == [1_000, NO_TIME]
    assert integers(plain["Size(KB)"], -1, 1 << 10).tolist() == [1536, -1, -1]


def test_names_are_translated() -> None:
    assert torch_shapes("4096;\r\n32,9216;\r\n;\r\n") == "[[4096], [32, 9216], [], []]"
    assert torch_types("float;\r\nScalar") == '["float", "Scalar"]'
    assert group_hash("group_name_19") == "3985310405473756128"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("form", FORMS)
def test_asserted_values_of_real_recordings(form: str, rank: int) -> None:
    expected = json.loads(recording_path("traces/ascend/expected.json").read_text())
    place = "text" if form == "text" else "db"
    values = expected[f"{place}/level1/rank{rank}"]
    name = FILES["text"] if form == "text" else f"ascend_pytorch_profiler_{rank}.db"
    folder = f"traces/ascend/{place}/level1/rank{rank}_ascend_pt"
    recording_path(folder)
    trace = trace_of(recording_path(f"{folder}/ASCEND_PROFILER_OUTPUT/{name}"))
    assert trace.meta.rank == rank
    # README.md of the recordings: 24 cube cores at 1,800 MHz
    assert [(device.multiprocessors, device.clock_mhz) for device in trace.meta.devices] == [(24, 1800)]
    peaks = answer_of(trace, "roofline")["peaks"]["columns"]
    assert dict(zip(peaks["precision"], peaks["flop_rate"], strict=True))["fp16"] == 24 * 1.8e9 * 8192
    check_memory_curve(trace)
    times = dict.fromkeys(set(texts(trace, "core")), 0)
    cores, column = texts(trace, "core"), trace.args["core"]
    for core, row in zip(cores, column.events.tolist(), strict=True):
        times[core] += int(trace.events.dur[row])
    if form == "text":
        by_core = {core: total * 1000 for core, (_, total) in values["by_core"].items() if core != "HCCL"}
        compute, comm = values["compute_sum_us"] * 1000, values["comm_sum_us"] * 1000
        operators = values["op_device_self_us"] * 1000
        step = values["step_trace_time"][0]
        exposed, overlap = (float(step[k]) * 1000 for k in ("Communication(Not Overlapped)", "Overlapped"))
        moved = values["communication"]["step50/collective/Total Op Info"]["links"]["HCCS"]
    else:
        by_core = {core: total for core, (_, total) in values["by_core"].items()}
        compute, comm = values["compute_sum_ns"], values["comm_sum_ns"]
        operators = {0: 111_011_531, 1: 107_505_824}[rank]
        step = values["analysis.StepTraceTime"][1]
        exposed, overlap = (step[k] * 1000 for k in ("communication_not_overlapped", "overlapped"))
        moved = (427.596096, {0: 28.570051, 1: 28.788575}[rank])
    assert times == pytest.approx(by_core, abs=100)
    assert stream_time(trace, Category.KERNEL) == pytest.approx(compute, abs=100)
    assert stream_time(trace, Category.COMM) == pytest.approx(comm, abs=100)
    copies = stream_time(trace, Category.MEMCPY) if form == "database" else 0
    self_ns = sum(answer_of(trace, "operator")["columns"]["device_self_ns"])
    assert self_ns - copies == pytest.approx(operators, abs=100)
    (device,) = work_by_device(trace)
    computing, communicating, both = device.times(trace.steps.ts, trace.steps.ts + trace.steps.dur)[:, 0].tolist()
    assert (computing, communicating - both, both) == pytest.approx((compute, exposed, overlap), abs=100)
    assert trace.args["link_bytes"].values.sum() == pytest.approx(moved[0] * 1e6, abs=1)
    assert trace.args["link_ns"].values.sum() == pytest.approx(moved[1] * 1e6, abs=100)
    if form == "text":
        phases = [values["communication"]["step50/collective/Total Op Info"][f"{n}_ms"] for n in ("transit", "wait")]
        times_ns = [trace.args[n].values.sum() / 1e6 for n in ("transit_ns", "notify_wait_ns")]
        assert times_ns == pytest.approx(phases, abs=1e-5)
    check_counts(trace)


def check_memory_curve(trace: Trace) -> None:
    """Check the peak of the framework's memory in `memory_record.csv` and in the table MEMORY_RECORD, in MiB."""
    peaks: dict[str, float] = {}
    for number, track in enumerate(trace.tracks):
        values = trace.counters.value[trace.counters.track == number]
        if track.name.startswith("Memory PTA allocated"):
            peaks[track.name] = float(values.max()) / (1 << 20)
    assert peaks == {"Memory PTA allocated B": pytest.approx(1187.981, abs=0.001)}


def check_counts(trace: Trace) -> None:
    """Check what all four recordings have in common."""
    on_stream = trace.track_mask(TrackKind.STREAM)
    counts = {c: int((on_stream & (trace.events.category == c)).sum()) for c in Category}
    assert (counts[Category.KERNEL], counts[Category.COMM], counts[Category.MEMCPY]) == (187, 4, 24)
    assert len(set(texts(trace, "type"))) == 33
    is_kernel = on_stream & (trace.events.category == Category.KERNEL)
    assert len(set(trace.events.name[is_kernel].tolist())) == 78
    sizes = trace.allocs.bytes
    assert (int((sizes > 0).sum()), int((sizes < 0).sum()), int(sizes[sizes > 0].sum())) == (184, 160, 1_495_289_344)
    assert int(trace.allocs.allocated.max()) == 1_245_688_832
    assert trace.args["elements_in"].values.tolist() == [4_097_000, 16_781_312, 37_752_832, 2_469_696]
    assert np.array_equal(trace.args["group_seq"].values, np.arange(4))
    assert [trace.strings[i] for i in trace.steps.name] == ["50"]
