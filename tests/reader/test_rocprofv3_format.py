"""rocprofv3's JSON: a file made by hand as the tool writes it; every number is worked out here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import FIXTURES, answer, rows
from tests.reader.test_formats import check_invariants
from visualprof.errors import FormatError
from visualprof.reader import Trace, read_trace
from visualprof.reader.trace import Category, LinkKind

MICRO = FIXTURES / "rocprofv3" / "micro_results.json"


def events(trace: Trace, category: Category) -> list[tuple[str, int, int]]:
    """Name, start and duration of those of a category, by time."""
    chosen = np.flatnonzero(trace.events.category == category)
    columns = (trace.events.name[chosen], trace.events.ts[chosen], trace.events.dur[chosen])
    return sorted(((trace.strings[n], int(t), int(d)) for n, t, d in zip(*columns, strict=True)), key=lambda e: e[1])


def changed(folder: Path, change: Any) -> Path:
    document = json.loads(MICRO.read_text())
    change(document["rocprofiler-sdk-tool"][0])
    path = folder / "unknown"
    path.write_text(json.dumps(document))
    return path


def test_everything_is_read() -> None:
    trace = read_trace(MICRO)
    check_invariants(trace)
    assert events(trace, Category.KERNEL) == [("add(float*)", 3000, 500)]
    assert events(trace, Category.MEMSET) == [("__amd_rocclr_fillBufferAligned", 4500, 10)]
    assert events(trace, Category.MEMCPY) == [("Memcpy HtoD", 2100, 200), ("Memcpy DtoH", 5000, 100)]
    assert events(trace, Category.COMM) == [("ncclAllReduce", 2500, 30), ("ncclDevKernel_Generic", 3600, 800)]
    assert events(trace, Category.RUNTIME) == [
        ("hipMemcpyAsync", 2000, 50),
        ("hipLaunchKernel", 2400, 20),
        ("hsa_signal_wait_scacquire", 5200, 800),
    ]
    assert events(trace, Category.ANNOTATION) == [("here", 6600, -1)]
    assert [(trace.strings[n], int(t)) for n, t in zip(trace.steps.name, trace.steps.ts, strict=True)] == [("5", 1900)]
    assert trace.steps.dur.tolist() == [4600]
    assert sorted((t.name, t.pid, t.device) for t in trace.tracks) == [
        ("copies", "41", 1),
        ("queue 5", "41", 1),
        ("stream 0", "41", 0),
        ("stream 7", "41", 1),
        ("thread 41", "41", -1),
        ("thread 42", "41", -1),
    ]
    assert (trace.links.kind == LinkKind.LAUNCH).sum() == 3  # two calls of HIP, one of RCCL
    assert sorted(trace.args["registers"].values.tolist()) == [8, 24, 112]
    assert trace.args["bytes"].values.sum() == 4160
    assert {trace.strings[i] for i in trace.args["grid"].values} == {"[4, 2, 1]", "[1, 1, 1]"}  # 1,000 items in groups
    assert [(d.id, d.name, d.multiprocessors) for d in trace.meta.devices] == [
        (0, "AMD Instinct MI300X", 304),
        (1, "AMD Instinct MI300X", 304),
    ]
    assert (trace.meta.producer, trace.meta.host, trace.meta.device_type) == ("rocprofv3", "box", "hip")


def test_the_kernel_page_has_them() -> None:
    assert rows(answer("kernel", MICRO), "total_ns", "calls") == {
        "ncclDevKernel_Generic": [800, 1],
        "add(float*)": [500, 1],
    }


def test_references_of_a_record_may_be_missing(tmp_path: Path) -> None:
    def change(process: dict[str, Any]) -> None:
        del process["kernel_symbols"], process["agents"], process["strings"]
        del process["buffer_records"]["kernel_dispatch"][0]["dispatch_info"]

    trace = read_trace(changed(tmp_path, change))
    assert [e[0] for e in events(trace, Category.KERNEL)] == ["unknown kernel"] * 2
    in_collective = [e for e in events(trace, Category.COMM) if e[0] == "unknown kernel"]
    assert len(in_collective) == 1  # launched by ncclAllReduce
    assert {e[0] for e in events(trace, Category.RUNTIME)} == {"unknown call"}
    assert trace.meta.devices == ()


def test_omitted_counters_are_reported(tmp_path: Path) -> None:
    def change(process: dict[str, Any]) -> None:
        process["callback_records"]["counter_collection"] = [{"dispatch_data": {}, "records": []}] * 2

    assert read_trace(changed(tmp_path, change)).meta.warnings == (
        "hardware counters of 2 kernels are in the file and are not shown",
    )


@pytest.mark.parametrize("time", [-5, 2**63, 10**30, "soon", 1.5])
def test_a_time_that_cannot_be_is_named(tmp_path: Path, time: object) -> None:
    def change(process: dict[str, Any]) -> None:
        process["buffer_records"]["hip_api"][1]["start_timestamp"] = time

    with pytest.raises(FormatError, match=r"unknown: not a whole profile of rocprofv3 .*start_timestamp"):
        read_trace(changed(tmp_path, change))


def test_a_cut_file(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_bytes(MICRO.read_bytes()[:-100])
    with pytest.raises(FormatError, match=r"cut.json: not a whole profile of rocprofv3"):
        read_trace(tmp_path / "cut.json")
