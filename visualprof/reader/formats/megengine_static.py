"""MegEngine static-graph profile: `{"graph_exec": ..., "profiler": ...}` of one execution, as a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.chrome.values import Json, capture_meta, integer, json_list, json_object, load_object, number
from visualprof.reader.megengine.memory_plan import Plan, add_plan
from visualprof.reader.megengine.tensors import memory_device
from visualprof.reader.registry import Format
from visualprof.reader.source import GROWING_HINT, Source
from visualprof.reader.trace import Category, Device, Ints, LinkKind, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

MAX_SECONDS = 4e9  # as Unix time the year 2096
_Span = tuple[str, str, int, int, int]  # operator id, device or thread, start, kernel start, end: ns


def sniff(head: bytes) -> bool:
    """Return whether the top-level keys are those of this format, in either order."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:200]
    return start.startswith(b"{") and (b'"graph_exec"' in start or (b'"profiler"' in start and b'"opr_' in head))


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file.

    Times are in seconds. Device and host have separate clocks; each is shown relative to its own first start.
    """
    document = _load(source)
    graph, profile = document["graph_exec"], document["profiler"]
    operators, footprint = json_object(graph.get("operator")), json_object(profile.get("opr_footprint"))
    device, host = (_spans(json_object(profile.get(side)), builder) for side in ("device", "host"))
    tracks = {
        lane: builder.track(TrackKind.STREAM, _device_label(lane), "device", lane, device=i)
        for i, lane in enumerate(dict.fromkeys(s[1] for s in device))
    }
    threads = {lane: builder.track(TrackKind.THREAD, lane, "host", lane) for lane in dict.fromkeys(s[1] for s in host)}
    for first_row, spans, lanes, category in (
        (0, host, threads, Category.OP),
        (len(host), device, tracks, Category.KERNEL),
    ):
        if spans:
            rows = np.arange(len(spans)) + first_row
            _add_events(builder, rows, spans, lanes, category, operators)
            ids = [s[0] for s in spans]
            _add_args(builder, rows, ids, operators, footprint)
            types = [_input_types(operators.get(i), json_object(graph.get("var"))) for i in ids]
            builder.arg("input_types", rows, builder.strings(types), text=True)
            all_types = [_all_input_types(operators.get(i), json_object(graph.get("var"))) for i in ids]
            builder.arg("input_dtypes", rows, builder.strings(all_types), text=True)
    host_row = {s[0]: i for i, s in enumerate(host)}
    pairs = [(host_row[s[0]], len(host) + i) for i, s in enumerate(device) if s[0] in host_row]
    if pairs:
        ends = np.array(pairs, np.int64)
        builder.link(ends[:, 0], ends[:, 1], LinkKind.LAUNCH)
    numbers = {name: i for i, lane in enumerate(tracks) for name in (lane, _device_label(lane))}
    add_plan(builder, _build_plan(builder, graph, _operator_times(graph, device), host_row, numbers))
    builder.describe(
        **capture_meta(document, {}),
        framework="megengine",
        producer="megengine static profile",
        device_work="operator",
        device_type="cuda" if any("gpu" in lane for lane in tracks) else "cpu",
        devices=tuple(Device(i, _device_label(lane)) for i, lane in enumerate(tracks)),
    )


def _load(source: Source) -> Json:
    """Return the document with graph and profile; for a graph of 20,000 operators it is 40 MB."""
    kind = msg("formats.whole_megengine_static_profile", "a whole MegEngine static profile")
    document = load_object(source, kind)
    for section in ("graph_exec", "profiler"):
        if not isinstance(document.get(section), dict):
            raise source.error(msg("formats.not_no_object", f"not {kind} ({section} is not an object)"), GROWING_HINT)
    return document


def _add_events(
    builder: TraceBuilder,
    rows: Ints,
    spans: list[_Span],
    lanes: Mapping[str, int],
    category: Category,
    operators: Json,
) -> None:
    """Add the spans of the device or of the host; the first one starts at time 0."""
    start, kernel, end = (np.array([s[i] for s in spans], np.int64) for i in (2, 3, 4))
    builder.events(
        ts=start - int(start.min()),
        dur=end - start,
        name=builder.strings(_name(operators, s[0]) for s in spans),
        row=rows,
        category=category,
        track=np.array([lanes[s[1]] for s in spans]),
    )
    builder.arg("wait_ns", rows, kernel - start)


def _spans(times: Json, builder: TraceBuilder) -> list[_Span]:
    """Return every span that has all its times."""
    spans: list[_Span] = []
    invalid = 0
    for operator, lanes in times.items():
        for lane, span in json_object(lanes).items() or [("", lanes)]:
            seconds = [number(json_object(span).get(k)) for k in ("start", "kern", "end")]
            if all(second is not None and abs(second) < MAX_SECONDS for second in seconds):
                start, kern, end = (round(second * 1e9) for second in seconds if second is not None)
                spans.append((operator, lane, start, kern, end))
            else:
                invalid += 1
    if invalid:
        builder.warn(
            msg(
                "formats.operators_no_times_times",
                f"{invalid:,} operators without valid times were left out",
            )
        )
    return spans


def _operator_times(graph: Json, device: list[_Span]) -> dict[str, tuple[int, int, int]]:
    """Return (position, start, end) of every operator in order of execution, ns on the device's clock.

    An operator without device time is placed at the end of its predecessor on the device. Starts on a device are made
    distinct, because the plan needs an order and the file's times are whole microseconds.
    """
    origin = min((s[2] for s in device), default=0)
    spans: dict[str, tuple[str, int, int]] = {}
    for operator, lane, start, _, end in device:
        earlier = spans.get(operator, (lane, start, end))
        spans[operator] = earlier[0], min(earlier[1], start), max(earlier[2], end)
    clock: dict[str, tuple[int, int, int]] = {}
    latest: dict[str, tuple[int, int]] = {}
    lane = ""
    for position, operator in enumerate(map(str, json_list(graph.get("comp_seq")))):
        lane = spans[operator][0] if operator in spans else lane
        last_start, last_end = latest.get(lane, (-1, 0))
        start, end = (t - origin for t in spans[operator][1:]) if operator in spans else (last_end, last_end)
        start = max(start, last_start + 1)
        latest[lane] = start, max(start + 1, end)
        clock[operator] = position, *latest[lane]
    return clock


def _build_plan(
    builder: TraceBuilder,
    graph: Json,
    clock: dict[str, tuple[int, int, int]],
    host_row: dict[str, int],
    numbers: dict[str, int],
) -> Plan:
    """Return the planned chunks: each lives from the first operator that writes it to the last one that reads it.

    Weights (PERSISTENT_DEVICE_VALUE) live throughout.
    """
    operators, variables, chunks = (json_object(graph.get(k)) for k in ("operator", "var", "mem_chunk"))
    users = _users_of_variables(operators, clock)
    variables_of_chunk: dict[str, list[str]] = {}  # variables by chunk
    for variable, entry in variables.items():
        chunk = json_object(json_object(entry).get("mem_plan")).get("mem_chunk_id")
        if chunk is not None:
            variables_of_chunk.setdefault(str(chunk), []).append(variable)
    rows: list[tuple[int, ...]] = []
    categories: list[str] = []
    for order, (chunk, variables_inside) in enumerate(variables_of_chunk.items()):
        entry = json_object(chunks.get(chunk))
        size, addr = _clamp_integer(entry.get("size")), _clamp_integer(entry.get("dev_ptr"))
        chunk_users = sorted((o for v in variables_inside for o in users.get(v, ())), key=lambda o: clock[o][0])
        first_variable = json_object(variables[variables_inside[0]])
        category = _chunk_category([json_object(variables[v]) for v in variables_inside], operators, chunk_users)
        if size <= 0 or (not chunk_users and category != "parameter"):
            continue
        stays = category == "parameter"
        begin, end = (0, -1) if stays else (clock[chunk_users[0]][1], max(clock[o][2] for o in chunk_users))
        device = memory_device(str(first_variable.get("comp_node", "")), numbers)
        first, last = (host_row.get(chunk_users[i], -1) if chunk_users else -1 for i in (0, -1))
        rows.append((begin, end, addr or order + 1, size, device, first, last))
        categories.append(category)
    if rows and all(c == "parameter" for c in categories):
        builder.warn(
            msg(
                "formats.only_weights_memory_planned",
                "only the weights' memory was planned; that of activations, allocated in the run, is not in the file",
            )
        )
    table = np.array(rows, np.int64).reshape(-1, 7)
    begin, end, addr, size, device, first_use, last_use = (table[:, i] for i in range(7))
    return Plan(
        begin=begin,
        end=end,
        addr=addr,
        size=size,
        device=device,
        first_use=first_use,
        last_use=last_use,
        category=builder.strings(categories),
    )


def _users_of_variables(operators: Json, executed: Iterable[str]) -> dict[str, list[str]]:
    """Return producer and consumers of each variable, among the executed operators."""
    users: dict[str, list[str]] = {}
    for operator in executed:
        entry = json_object(operators.get(operator))
        for variable in (*json_list(entry.get("output")), *json_list(entry.get("input"))):
            users.setdefault(str(variable), []).append(operator)
    return users


def _chunk_category(variables: list[Json], operators: Json, users: list[str]) -> str:
    """Return the purpose of a chunk."""
    if any("PERSISTENT_DEVICE_VALUE" in json_list(v.get("flag")) for v in variables):
        return "parameter"
    if all(str(v.get("name", "")).endswith(":workspace") for v in variables):
        return "temporary"
    producer_type = str(json_object(operators.get(users[0])).get("type", "")) if users else ""
    return "input" if producer_type == "Host2DeviceCopy" else "activation"


def _clamp_integer(value: object) -> int:
    try:
        return max(-(2**61), min(2**61, int(str(value))))
    except ValueError:
        return 0


def _name(operators: Json, operator: str) -> str:
    return str(json_object(operators.get(operator)).get("name", operator))


def _device_label(lane: str) -> str:
    """Return `cpu0:0` for `CompNode("cpu0:0" from "xpux:0")`."""
    quoted = lane.split('"')
    return quoted[1] if len(quoted) > 1 else lane


def _add_args(builder: TraceBuilder, rows: Ints, ids: list[str], operators: Json, footprint: Json) -> None:
    """Add type, id, shapes, computation (FLO, 2 per multiply-add) and moved memory (bytes) of each operator."""
    entries = [json_object(operators.get(i)) for i in ids]
    types = [str(entry.get("type", "")) for entry in entries]
    builder.arg("type", rows, builder.strings(types), text=True)
    builder.arg("operator_id", rows, builder.strings(ids), text=True)
    footprints = [json_object(footprint.get(i)) for i in ids]
    for key, name in (("in_shapes", "input_shapes"), ("out_shapes", "output_shapes"), ("param", "parameters")):
        texts = [msgspec.json.encode(p[key]).decode() if p.get(key) else "" for p in footprints]
        present = np.array([bool(t) for t in texts], bool)
        builder.arg(name, rows[present], builder.strings(t for t in texts if t), text=True)
    for key, name, minimum in (("computation", "flops", 1), ("memory", "bytes", 0)):
        counts = [integer(p.get(key)) for p in footprints]
        present = np.array([count is not None and count >= minimum for count in counts], bool)
        builder.arg(name, rows[present], np.array([c for c, k in zip(counts, present, strict=True) if k], np.int64))
    operator_index = {operator: i for i, operator in enumerate(operators)}
    builder.arg("operator_index", rows, np.array([operator_index.get(i, len(operator_index)) for i in ids], np.int64))


def _input_types(operator: object, variables: Json) -> str:
    """Return the distinct data types of an operator's inputs with planned memory: `Float32 Int32`."""
    return " ".join(dict.fromkeys(filter(None, _dtypes(operator, variables))))


def _all_input_types(operator: object, variables: Json) -> str:
    """Return the data type of each input as JSON, null for an input without planned memory: `["Float32", null]`."""
    return msgspec.json.encode(_dtypes(operator, variables)).decode()


def _dtypes(operator: object, variables: Json) -> list[str | None]:
    inputs = json_list(json_object(operator).get("input"))
    plans = (json_object(json_object(variables.get(str(v))).get("mem_plan")) for v in inputs)
    return [str(json_object(plan.get("layout")).get("dtype", "")) or None for plan in plans]


FORMAT = Format("megengine-static", "MegEngine", 11, sniff, read)
