"""Nsight Compute: tables and reports made by hand as the tool writes them; every number is worked out here."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import answer, json_of, rows
from tests.reader.messages import message_classes
from tests.reader.test_formats import check_invariants
from visualprof.errors import FormatError
from visualprof.reader import Trace, read_trace
from visualprof.views import Params, run_view
from visualprof.views.counters import plain_name

HEAD = "ID,Process ID,Process Name,Host Name,Kernel Name,Context,Stream,Block Size,Grid Size,Device,CC"
LAUNCH = ",".join(f'"{name}"' for name in HEAD.split(","))
DETAILS = f"""==PROF== Connected to process 41 (python)
==PROF== Profiling "add" - 0: 0%....50%....100% - 9 passes
{LAUNCH},"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description"
L0,"GPU Speed Of Light Throughput","Duration","us","2.50","","",""
L0,"GPU Speed Of Light Throughput","Memory Throughput","%","61.84","","",""
L0,"GPU Speed Of Light Throughput","Compute (SM) Throughput","%","1.30","","",""
L0,"Memory Workload Analysis","Memory Throughput","Gbyte/s","196.46","","",""
L0,"Launch Statistics","Registers Per Thread","register/thread","32","","",""
L0,"Launch Statistics","Static Shared Memory Per Block","Kbyte/block","1.02","","",""
L0,"Launch Statistics","Dynamic Shared Memory Per Block","byte/block","80","","",""
L0,"Launch Statistics","Function Cache Configuration","","CachePreferNone","","",""
L0,"Instruction Statistics","Executed Instructions","inst","16,105,472","","",""
L0,"Occupancy","Achieved Occupancy","%","96.26","","",""
L0,"Occupancy","","","","Achieved Occupancy","INF","so, ""it"" is
well filled"
L1,"GPU Speed Of Light Throughput","Duration","us","1.50","","",""
L1,"GPU Speed Of Light Throughput","Compute (SM) Throughput","%","2.30","","",""
==PROF== Disconnected from process 41
"""
LAUNCHES = {
    f"L{i}": f'"{i}","41","python","box","void add<float>(float*, int)","1","7","(256, 1, 1)","(1024, 2, 1)","0","8.0"'
    for i in (0, 1)
}
RAW = f"""{LAUNCH},"gpu__time_duration.sum","sm__throughput.avg.pct_of_peak_sustained_elapsed","dram__bytes_read.sum"
"","","","","","","","","","","","nsecond","%","byte"
{LAUNCHES["L0"]},"2,500","1.3","10,240,000"
{LAUNCHES["L1"]},"4.0e+03","n/a","2,048"
"""


def details(text: str = DETAILS) -> str:
    for mark, launch in LAUNCHES.items():
        text = text.replace(f"\n{mark},", f"\n{launch},")
    return text


def metrics(trace: Trace) -> dict[str, list[float]]:
    """Values of each metric by section and name."""
    parts = {tuple(key.split("\t")[1:]): column.values.tolist() for key, column in trace.args.items() if "\t" in key}
    return {f"{section}|{name}|{unit}": values for (section, name, unit), values in parts.items()}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "unknown"
    path.write_text(details())
    return path


def test_the_page_details(table: Path, tmp_path: Path) -> None:
    trace = read_trace(table)
    check_invariants(trace)
    assert trace.events.dur.tolist() == [2500, 1500]
    assert trace.events.ts.tolist() == [0, 2500]
    assert {trace.strings[n] for n in trace.events.name} == {"void add<float>(float*, int)"}
    assert [trace.strings[int(i)] for i in trace.args["grid"].values] == ["[1024, 2, 1]"] * 2
    figures = {
        name: column.values.tolist() for name, column in trace.args.items() if "\t" not in name and not column.text
    }
    assert figures == {
        "occupancy": [pytest.approx(0.9626)],
        "sm_throughput": [pytest.approx(0.013), pytest.approx(0.023)],
        "memory_throughput": [pytest.approx(0.6184)],
        "registers": [32],
        "shared_memory": [1100],
    }
    assert metrics(trace)["Instruction Statistics|Executed Instructions|inst"] == [16_105_472]
    assert metrics(trace)["Memory Workload Analysis|Memory Throughput|Gbyte/s"] == [196.46]
    assert len(metrics(trace)) == 9
    assert (trace.meta.producer, trace.meta.host) == ("Nsight Compute", "box")
    (tmp_path / "packed").write_bytes(gzip.compress(table.read_bytes()))
    np.testing.assert_array_equal(read_trace(tmp_path / "packed").events.dur, trace.events.dur)


def test_printed_lines_of_the_program_are_not_rows(table: Path) -> None:
    table.write_text(details().replace("==PROF== Disc", "loss: 3.1, 4\n\n==PROF== Disc"))
    trace = read_trace(table)
    assert len(trace.events) == 2
    assert "1 lines outside of the table were left out" in trace.meta.warnings


def test_the_page_raw(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text(RAW)
    trace = read_trace(tmp_path / "raw.csv")
    assert trace.events.dur.tolist() == [2500, 4000]
    assert trace.args["sm_throughput"].values.tolist() == [pytest.approx(0.013)]
    assert metrics(trace)["|dram__bytes_read.sum|byte"] == [10_240_000, 2048]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.234.567,89", 1234567.89), ("96,26", 96.26), ("1,234", 1234), ("-3", -3), (".5", 0.5), ("1e-3", 0.001)],
)
def test_numbers_as_any_country_writes_them(tmp_path: Path, text: str, value: float) -> None:
    (tmp_path / "t.csv").write_text(details(DETAILS.replace("16,105,472", text)))
    assert metrics(read_trace(tmp_path / "t.csv"))["Instruction Statistics|Executed Instructions|inst"] == [value]


@pytest.mark.parametrize("text", ["n/a", "", "nan", "inf", "1e99", "0x10", "(!) 1"])
def test_values_that_are_not_numbers_are_dropped(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.csv").write_text(details(DETAILS.replace("16,105,472", text)))
    assert "Instruction Statistics|Executed Instructions|inst" not in metrics(read_trace(tmp_path / "t.csv"))


def test_a_table_without_durations_still_has_its_metrics(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(details(DETAILS.replace('"Duration"', '"Elapsed"')))
    trace = read_trace(tmp_path / "t.csv")
    assert trace.events.dur.tolist() == [-1, -1]
    assert rows(counters(trace), "mean_ns", "launches") == {"void add<float>(float*, int)": [None, 2]}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (LAUNCH + "\n", "a table of Nsight Compute without kernels"),
        ('"ID","Process ID","Context"\n"Kernel Name"', "a table of Nsight Compute without the names of its kernels"),
        (details()[:-170] + '\n"0","41', "a table of Nsight Compute that is damaged"),
    ],
)
def test_unreadable_parts_are_named(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(FormatError, match=rf"t\.csv: {error}"):
        read_trace(tmp_path / "t.csv")


M = message_classes(
    "ncu",
    """
Header version 1 uint32, Block sources 1 uint32, Block results 2 uint32, Block strings 4 Strings, Block payload 5 uint32
Strings texts 1 []string, Extent x 1 uint64, Extent y 2 uint64, Extent z 3 uint64
Result mangled 5 string, Result function 6 string, Result demangled 7 string, Result grid 10 Extent
Result block 11 Extent, Result metrics 13 []Metric, Result sections 17 []Section, Result stream 23 uint32
Metric name 1 uint32, Metric value 2 Value
Value text 1 string, Value single 2 float, Value real 3 double, Value small 4 uint32, Value large 5 uint64
Section identifier 1 string, Section name 2 string, Section header 4 SectionHeader
SectionHeader metrics 2 []SectionMetric, SectionMetric name 1 string, SectionMetric label 2 string
""",
)
VALUES = {
    "gpu__time_duration.sum": {"real": 2500.0},
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": {"real": 27.5},
    "launch__registers_per_thread": {"large": 16},
    "launch__shared_mem_per_block_static": {"small": 1024},
    "device__attribute_display_name": {"text": "Tesla T4"},
    "device__attribute_multiprocessor_count": {"small": 40},
    "device__attribute_compute_capability_major": {"small": 7},
    "device__attribute_total_memory": {"large": 16 << 30},
    "device__attribute_compute_capability_minor": {"small": 5},
    "launch__func_cache_config": {"text": "None"},
    "sm__warps_active.avg.pct_of_peak_sustained_active": {"single": 79.5},
}


def sized(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return struct.pack("<I", len(data)) + data


def report() -> bytes:
    """A report with a block of a kernel, whose texts stand in its block."""
    metrics = [M["Metric"](name=i, value=M["Value"](**value)) for i, value in enumerate(VALUES.values())]
    header = M["SectionHeader"]()
    header.metrics.add(name="sm__throughput.avg.pct_of_peak_sustained_elapsed", label="Compute (SM) Throughput")
    result = M["Result"](
        mangled="_Z3addPf",
        demangled="add(float *)",
        grid=M["Extent"](x=63, y=63, z=1),
        stream=7,
        metrics=metrics,
        block=M["Extent"](x=16, y=16, z=1),
        sections=[M["Section"](identifier="SpeedOfLight", name="GPU Speed Of Light Throughput", header=header)],
    )
    source, payload = b"\x03\x00\x00\x00abc", sized(result)
    blocks = [
        sized(M["Block"](sources=0, results=0)),
        sized(M["Block"](sources=1, payload=len(source))) + source,
        sized(M["Block"](results=1, payload=len(payload), strings=M["Strings"](texts=list(VALUES)))) + payload,
    ]
    return b"NVR\x00" + sized(M["Header"](version=7)) + b"".join(blocks)


def test_a_report(tmp_path: Path) -> None:
    (tmp_path / "unknown").write_bytes(report())
    trace = read_trace(tmp_path / "unknown")
    check_invariants(trace)
    assert trace.events.dur.tolist() == [2500]
    assert trace.strings[trace.events.name[0]] == "add(float *)"
    assert metrics(trace) == {
        "GPU Speed Of Light Throughput|Compute (SM) Throughput|%": [27.5],
        "|gpu__time_duration.sum|ns": [2500],
        "|launch__registers_per_thread|": [16],
        "|launch__shared_mem_per_block_static|byte": [1024],
        "|sm__warps_active.avg.pct_of_peak_sustained_active|%": [79.5],
    }
    assert trace.args["shared_memory"].values.tolist() == [1024]
    (device,) = trace.meta.devices
    assert (device.name, device.multiprocessors, device.compute_capability) == ("Tesla T4", 40, "7.5")
    assert device.memory_bytes == 16 << 30


def test_a_cut_report(tmp_path: Path) -> None:
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(report()[:-10])
    with pytest.raises(FormatError, match=r"cut\.ncu-rep: no whole report of Nsight Compute"):
        read_trace(path)
    path.write_bytes(report() + b"\xff\xff\xff\x7f")
    trace = read_trace(path)
    assert len(trace.events) == 1
    assert trace.meta.truncated
    path.write_bytes(b"NVR\x00" + sized(M["Header"](version=7)))
    with pytest.raises(FormatError, match=r"cut\.ncu-rep: a report of Nsight Compute without kernels"):
        read_trace(path)


def counters(*traces: Trace) -> dict[str, Any]:
    return json_of(
        run_view("counters").compute_from_traces([(str(i), trace) for i, trace in enumerate(traces)], Params())
    )


def test_kernels_of_the_run_are_joined_by_name(table: Path, write: Callable[..., Path]) -> None:
    def kernel(name: str, ts: float, dur: float) -> dict[str, object]:
        return {
            "ph": "X",
            "cat": "kernel",
            "name": name,
            "pid": 0,
            "tid": 7,
            "ts": ts,
            "dur": dur,
            "args": {"device": 0, "stream": 7},
        }

    run = write(
        [
            kernel("void add<float>(float *,int)", 0, 3),
            kernel("void add<float>(float *,int)", 9, 5),
            kernel("mul", 20, 1),
        ],
        schemaVersion=1,
    )
    result = counters(read_trace(run), read_trace(table))
    assert result["matched"] == 1
    joined = rows(result, "launches", "mean_ns", "run_calls", "run_total_ns", "run_mean_ns", "sm_throughput_ratio")
    assert joined == {"void add<float>(float*, int)": [2, 2000, 2, 8000, 4000, pytest.approx(0.018)]}
    alone = counters(read_trace(table))
    assert alone["matched"] == 0
    assert rows(alone, "run_calls", "run_total_ns")["void add<float>(float*, int)"] == [None, None]


def test_metrics_are_means_of_the_launches(table: Path) -> None:
    lines = counters(read_trace(table))["metrics"]["columns"]
    place = lines["name"].index("Compute (SM) Throughput")
    assert [lines[key][place] for key in ("section", "unit", "value", "least", "most")] == [
        "GPU Speed Of Light Throughput",
        "%",
        pytest.approx(1.8),
        1.3,
        2.3,
    ]


def test_the_kernel_page_has_them(table: Path) -> None:
    kernels = answer("kernel", table, group="launch")["columns"]
    assert kernels["total_ns"] == [2500, 1500]  # of the second launch no registers were asked for
    assert kernels["registers_per_thread"] == [32, None]
    assert kernels["occupancy"] == [pytest.approx(0.9626), None]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("void at::add<float>(float const*, int)", "at::add<float>"),
        ("at::add<float> (float *)", "at::add<float>"),
        ("void f<(lambda at <unnamed>::x)>(int (*)(int), int)", "f<(lambdaat(anonymousnamespace)::x)>"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("(odd)", "(odd)"),
        ("", ""),
    ],
)
def test_names_omit_parts_that_tools_write_differently(name: str, plain: str) -> None:
    assert plain_name(name) == plain
