"""OpenVINO's performance counters: the duration of each operator in a run, without start times.

The forms are a remote run's envelope, `{"openvino": version, "profiling_info": [...], "runtime_graph": [...]}`, and
reports of counters of benchmark_app as JSON and as CSV, with times in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import cast

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.chrome.values import Json, capture_meta, json_list, json_objects, load_object
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format, is_json, opens_with
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

MAX_TEXT_CHARS = 2000
MAX_NS = 10**15  # eleven days for one operator
DEVICE_TYPES = {"GPU": "xpu", "NPU": "npu"}
_CSV_HEADER = b"layerName;execStatus;layerType;execType;"
_CSV_COLUMNS = ("name", "status", "node_type", "exec_type", "real_time", "cpu_time")  # with keys of the JSON form
_PRECISION_SUFFIX = pattern(r"_((?:b?f|[iu])\d{1,2})$", re.IGNORECASE)


class Node(msgspec.Struct, frozen=True):
    """An operator of one run; `executed` is false for operators that were fused or removed."""

    name: str
    type: str
    exec_type: str
    executed: bool
    real_ns: int
    cpu_ns: int


def start(head: bytes) -> bool:
    """Return whether this is JSON, or the header of a report as CSV."""
    return is_json(head) or opens_with(head, _CSV_HEADER)


def sniff(head: bytes) -> bool:
    """Return whether this is a report as CSV, or an object with counters, by the keys of either form."""
    has_rows = b'"detailed_performance"' in head and b'"report_type"' in head
    is_envelope = b'"openvino"' in head and (b'"profiling_info"' in head or b'"runtime_graph"' in head)
    return opens_with(head, _CSV_HEADER) or (opens_with(head, b"{") and (has_rows or is_envelope))


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. Operators are placed end to end in order of execution; each run is a step."""
    is_table = opens_with(source.head(), _CSV_HEADER)
    document = (
        {"detailed_performance": list(_parse_table(source))}
        if is_table
        else load_object(source, msg("formats.whole_counters_openvino", "whole counters of OpenVINO"))
    )
    graph = {str(entry.get("name", "")): entry for entry in json_objects(document.get("runtime_graph"))}
    runs = [_sort_by_execution(run, graph) for run in _parse_runs(document)]
    nodes = [node for run in runs for node in run]
    executed = [[node for node in run if node.executed] for run in runs]
    _add_runs(builder, executed, graph)
    left_out = len(nodes) - sum(map(len, executed))
    if left_out:
        builder.warn(
            msg(
                "formats.operators_did_not_run",
                f"{left_out:,} of {len(nodes):,} operators did not run on their own (fused, optimized out): left out",
            )
        )
    builder.warn(
        msg(
            "formats.openvino_records_durations_no",
            "OpenVINO records durations, no start times: the operators are shown end to end in the executor's order, "
            "without gaps",
        )
    )
    _describe(builder, document)


def _parse_table(source: Source) -> Iterator[Json]:
    """Yield the runs of a report as CSV, with the keys of the JSON form. A header starts a run, a total ends it."""
    hint = msg("formats.measure_fewer_runs", "measure fewer runs")
    text = source.read_all(1 << 30, msg("formats.report_of_openvino", "a report of OpenVINO"), hint)
    nodes: list[Json] = []
    for line in text.decode("utf-8", "replace").splitlines():
        values = line.rstrip(";").rsplit(";", len(_CSV_COLUMNS) - 1)
        if len(values) < len(_CSV_COLUMNS) or values[0] == "Total" or line.startswith(_CSV_HEADER.decode()):
            if nodes:
                yield {"nodes": nodes}
            nodes = []
            continue
        nodes.append(dict(zip(_CSV_COLUMNS, values, strict=True)))
    if nodes:
        yield {"nodes": nodes}


def _parse_runs(document: Json) -> Iterator[list[Node]]:
    """Yield the operators of each run. The envelope has one run, or a list of them."""
    if isinstance(document.get("profiling_info"), list):
        rows = json_list(document["profiling_info"])
        has_several_runs = bool(rows) and all(isinstance(row, list) for row in rows)
        for run in rows if has_several_runs else [rows]:
            yield [_parse_node(row, "_us", 1e3) for row in json_objects(run)]
    for request in json_objects(document.get("detailed_performance")):
        yield [_parse_node(row, "", 1e6) for row in json_objects(request.get("nodes"))]


def _parse_node(row: Json, unit: str, factor: float) -> Node:
    """Return one row. benchmark_app writes the status as `Status.EXECUTED`."""
    real = _nanoseconds(row.get(f"real_time{unit}"), factor)
    status = str(row.get("status", "EXECUTED" if real else "NOT_RUN")).rpartition(".")[2].upper()
    return Node(
        _text(row.get("node_name", row.get("name"))),
        _text(row.get("node_type")),
        _text(row.get("exec_type")),
        status == "EXECUTED",
        real,
        _nanoseconds(row.get(f"cpu_time{unit}"), factor),
    )


def _nanoseconds(value: object, factor: float) -> int:
    try:
        ns = float(cast("float", value)) * factor
        return round(min(max(ns, 0.0), MAX_NS))
    except (TypeError, ValueError, OverflowError):
        return 0


def _text(value: object) -> str:
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) else ""


def _sort_by_execution(run: list[Node], graph: dict[str, Json]) -> list[Node]:
    """Return operators in order of execution. An operator missing in the runtime graph stays after its predecessor."""
    position = -1
    positions: list[int] = []
    for node in run:
        order = str(graph.get(node.name, {}).get("execOrder"))
        position = int(order) if order.isascii() and order.isdigit() and len(order) < 10 else position
        positions.append(position)
    return [run[i] for i in sorted(range(len(run)), key=lambda i: positions[i])]


def _add_runs(builder: TraceBuilder, runs: list[list[Node]], graph: dict[str, Json]) -> None:
    """Add each run as a step with its operators."""
    nodes = [node for run in runs for node in run]
    track = builder.track(TrackKind.THREAD, "executor")
    dur = np.array([n.real_ns for n in nodes], np.int64)
    ts = np.cumsum(dur) - dur
    rows = np.arange(len(nodes))
    builder.events(
        ts=ts,
        dur=dur,
        name=builder.strings(n.name or n.type for n in nodes),
        category=Category.OP,
        track=track,
        row=rows,
    )
    texts = {
        "type": [n.type for n in nodes],
        "exec_type": [n.exec_type for n in nodes],
        "precision": [_precision(n, graph) for n in nodes],
        "layers": [_text(graph.get(n.name, {}).get("originalLayersNames")) for n in nodes],
    }
    for name, values in texts.items():
        present = np.array([bool(v) for v in values], bool)
        builder.arg(name, rows[present], builder.strings(v for v in values if v), text=True)
    builder.arg("cpu_ns", rows, np.array([n.cpu_ns for n in nodes], np.int64))
    start = 0
    for i, run in enumerate(runs):
        length = sum(n.real_ns for n in run)
        builder.step(str(i), start, length, track)
        start += length


def _precision(node: Node, graph: dict[str, Json]) -> str:
    """Return the precision of an operator, from the name of its implementation, else from the runtime graph."""
    suffix = _PRECISION_SUFFIX.search(node.exec_type)
    return suffix[1].lower() if suffix else _text(graph.get(node.name, {}).get("runtimePrecision"))


def _describe(builder: TraceBuilder, document: Json) -> None:
    properties = {
        k: str(document[k])[:MAX_TEXT_CHARS] for k in ("model", "batch", "device") if document.get(k) is not None
    }
    builder.describe(
        **capture_meta(document, {}),
        framework="openvino",
        producer=f"OpenVINO {_text(document.get('openvino'))}".strip(),
        device_type=DEVICE_TYPES.get(properties.get("device", "CPU").partition(".")[0].upper(), "cpu"),
        properties=properties,
    )


FORMAT = Format("openvino", "OpenVINO", 16, sniff, read, start=start)
