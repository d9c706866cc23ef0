"""XSpace (`.xplane.pb`): recordings of GPUs, TPUs and CPUs by JAX, TensorFlow and PyTorch/XLA.

XSpace > XPlane (a device, or the host) > XLine (a stream, a thread) > XEvent; visualprof/reader/xplane.py reads them.
On a GPU the streams hold the work, and XLA derives lines of operations from them. On a TPU the line of operations is
the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from visualprof.messages import msg
from visualprof.reader.fields import Fields, parse_fields, parse_leading_fields
from visualprof.reader.lanes import device_category, is_derived_line
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format
from visualprof.reader.source import GROWING_HINT, Source
from visualprof.reader.trace import Category, Device, Ints, LinkKind, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.xplane import Plane, StringTable

MAX_BYTES = 2 << 30  # of a protobuf message
EPOCH_NS = 10**17  # larger times are Unix times, smaller ones are relative to the start of the recording
_PLANE_START = pattern(
    rb"\n[\x80-\xff]{0,9}[\x01-\x7f](\x08[\x80-\xff]{0,9}[\x00-\x7f])?"  # a message, perhaps with a number
    rb"\x12[\x01-\x7f](/host:|/device:|/custom:|Task Env)"  # and a name
)
_DEVICE = pattern(r"^/device:(?P<kind>\w+):(?P<id>\d{1,6})")
_STEPS_LINE = "Steps"
_CALL = pattern(r"^(cu|hip|cuda)[A-Z]\w+$")
_PYTHON = pattern(r"^\$(?P<file>\S+):(?P<line>\d+) (?P<name>.+)")
_DETAIL = pattern(r"(\w+):(\S+)")
# (prefix of host event names, framework that uses it)
_FRAMEWORKS = (("PjitFunction(", "jax"), ("PjRt", "jax"), ("Eager", "tensorflow"), ("FunctionRun", "tensorflow"))


def start(head: bytes) -> bool:
    """Return whether the first field is a plane."""
    return head.startswith(b"\n")


def sniff(head: bytes) -> bool:
    """Return whether the first plane has a typical name."""
    return bool(_PLANE_START.match(head))


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. Damaged parts are left out, with a warning."""
    data = source.read_all(
        MAX_BYTES,
        msg("formats.profile_xla", "a profile of XLA"),
        msg("formats.record_shorter_time", "record for a shorter time"),
    )
    top, is_complete = parse_leading_fields(data)
    planes = top.with_number(1, texts=True)
    if not len(planes.value):
        raise source.error(
            msg("formats.profile_xla_ends_within", "a profile of XLA that ends within its first device"), GROWING_HINT
        )
    space = _SpaceReader(data, builder, top)
    for begin, end in zip(planes.value.tolist(), planes.end.tolist(), strict=True):
        space.add(begin, end)
    space.finish()
    if not is_complete:
        builder.warn(
            msg("formats.file_ends_middle_devices", "the file ends in the middle: devices or threads are missing")
        )
        builder.describe(truncated=True)


class _SpaceReader:
    """Converts the planes of the file: rows, links between them, and facts about the run."""

    def __init__(self, data: bytes, builder: TraceBuilder, top: Fields) -> None:
        self._data, self._builder = data, builder
        self._texts = StringTable(data, builder.string)
        self._host = self._texts.message_texts(top.with_number(4, texts=True), 1)[0]
        self._rows = self._damaged = 0
        self._ends: dict[str, list[Ints]] = {"p": [], "c": [], "p rows": [], "c rows": []}
        self._steps: list[tuple[int, Ints, Ints, list[str], Ints]] = []
        self._devices: list[Device] = []
        self._type, self._framework, self._origin_ns = "cpu", "xla", -1

    def add(self, start: int, end: int) -> None:
        """Add the plane at these offsets."""
        plane = Plane(self._texts, self._fields, start, end)
        if plane.title == "Task Environment" and self._origin_ns < 0:
            self._origin_ns = plane.plane_number("profile_start_time")
        device = _DEVICE.match(plane.title)
        if device:
            self._describe(plane, int(device["id"]), device["kind"])
            self._add_events(plane, int(device["id"]), device["kind"])
        elif plane.title.startswith("/host:"):
            self._add_events(plane)
        elif len(plane.line):
            self._builder.warn(
                msg(
                    "formats.what_recorded_not_shown",
                    f"what {plane.title!r} recorded is not shown: such planes are unknown",
                )
            )

    def finish(self) -> None:
        """Add links, steps, and the facts about the run."""
        produced, consumed, producer_rows, consumer_rows = (
            np.concatenate([np.zeros(0, np.int64), *parts]) for parts in self._ends.values()
        )
        if len(produced):
            order = np.argsort(produced, kind="stable")
            index = np.minimum(np.searchsorted(produced[order], consumed), len(produced) - 1)
            is_match = produced[order][index] == consumed
            self._builder.link(producer_rows[order][index[is_match]], consumer_rows[is_match], LinkKind.ASYNC)
        step_device = min((device for device, *_ in self._steps), default=-1)  # the host's, else those of one device
        for device, *columns in self._steps:
            for ts, dur, name, track in zip(*columns, strict=True) if device == step_device else ():
                self._builder.step(name, int(ts), int(dur), int(track))
        if self._damaged:
            self._builder.warn(
                msg("formats.damaged_parts_file_left", f"{self._damaged:,} damaged parts of the file were left out")
            )
        self._builder.describe(
            framework=self._framework,
            producer="XLA profiler",
            host=self._host,
            device_type=self._type,
            devices=tuple(self._devices),
            clock_origin_ns=self._origin_ns,
            device_work="operator" if self._type == "tpu" else "kernel",
        )

    def _fields(self, start: Ints, end: Ints) -> Fields:
        parsed, damaged = parse_fields(self._data, start, end)
        self._damaged += damaged
        return parsed

    def _describe(self, plane: Plane, number: int, kind: str) -> None:
        self._type = kind.lower() if kind != "GPU" else "hip" if plane.plane_text("device_vendor") == "AMD" else "cuda"
        major, minor = plane.plane_number("compute_cap_major"), plane.plane_number("compute_cap_minor")
        device = Device(
            id=number,
            name=plane.plane_text("gpu_device_name") or plane.plane_text("device_type_string"),
            memory_bytes=max(plane.plane_number("memory_size"), 0),
            compute_capability=f"{major}.{max(minor, 0)}" if major >= 0 and self._type == "cuda" else "",
            multiprocessors=max(plane.plane_number("core_count"), 0),
        )
        self._devices.append(device)

    def _add_events(self, plane: Plane, device: int = -1, kind: str = "") -> None:
        """Add events, arguments and link ends; `kind` is that of the device, "" for the host."""
        kinds = np.array([_track_kind(name, kind) for name in plane.lines], np.int64)
        tracks = np.array([self._track(plane, line, device, TrackKind(k)) for line, k in enumerate(kinds)], np.int64)
        timed_rows = np.flatnonzero(plane.timed)
        row, category = self._rows + np.arange(len(plane.line)), self._categories(plane, kinds)
        self._rows += len(row)
        if not kind:
            self._add_operators(plane, tracks)
        self._builder.events(
            ts=plane.ts[timed_rows],
            dur=plane.dur[timed_rows],
            name=self._names(plane)[timed_rows],
            category=category[timed_rows],
            track=tracks[plane.line[timed_rows]],
            row=row[timed_rows],
            corr=plane.number("correlation_id", 0)[timed_rows],
        )
        if len(timed_rows) and plane.ts[timed_rows].max() > EPOCH_NS:
            self._origin_ns = 0
        self._add_arguments(plane, row)
        for end in ("p", "c"):
            family, key = plane.number(f"_{end}t"), plane.number(f"_{end}")
            linked = timed_rows[key[timed_rows] != -1]
            self._ends[end].append(key[linked] * 64 + np.maximum(family[linked], 0) % 64)
            self._ends[f"{end} rows"].append(row[linked])
        steps = timed_rows[category[timed_rows] == Category.STEP]
        if len(steps):
            numbered = zip(plane.number("step_num")[steps].tolist(), plane.name[steps].tolist(), strict=True)
            names = [str(number) if number >= 0 else self._texts.text(name) for number, name in numbered]
            self._steps.append((device, plane.ts[steps], plane.dur[steps], names, tracks[plane.line[steps]]))

    def _track(self, plane: Plane, line: int, device: int, kind: TrackKind) -> int:
        number, fields = int(plane.line_ids[line]), dict[str, Any]()
        if device >= 0:
            fields = {"device": device, "stream": number if kind == TrackKind.STREAM else -1}
        tid = f"{plane.title}:{number}"
        return self._builder.track(kind, plane.lines[line], self._host, tid, process=self._host, **fields)

    def _names(self, plane: Plane) -> Ints:
        """Return (n,) names; Python functions are named as by torch, `file.py(12): function`."""
        texts = self._texts
        return _map_distinct_texts(
            plane.name, texts, lambda text: texts.id(_PYTHON.sub(r"\g<file>(\g<line>): \g<name>", text))
        )

    def _categories(self, plane: Plane, kinds: Ints) -> Ints:
        """Return (n,) categories, by name and statistics of an event."""
        category = np.where(
            kinds[plane.line] == TrackKind.THREAD,
            _map_distinct_texts(plane.name, self._texts, self._host_category),
            _map_distinct_texts(plane.name, self._texts, device_category),
        )
        stream = kinds[plane.line] == TrackKind.STREAM
        category[~stream & (kinds[plane.line] != TrackKind.THREAD)] = Category.ANNOTATION
        category[stream & (plane.text("memcpy_details") > 0)] = Category.MEMCPY
        category[stream & (plane.text("memset_details") > 0)] = Category.MEMSET
        thread = kinds[plane.line] == TrackKind.THREAD
        category[thread & (plane.number("correlation_id") > 0)] = Category.RUNTIME
        steps = np.array([name == _STEPS_LINE for name in plane.lines], bool)[plane.line]
        category[steps | (thread & (plane.number("step_num") >= 0))] = Category.STEP
        return category

    def _host_category(self, name: str) -> Category:
        for prefix, framework in _FRAMEWORKS:
            if name.startswith(prefix) and self._framework == "xla":
                self._framework = framework
        if name.startswith("$"):
            return Category.PYTHON
        return Category.RUNTIME if _CALL.match(name) else Category.OP

    def _add_arguments(self, plane: Plane, row: Ints) -> None:
        """Add the arguments that views show."""
        self._add_numbers("flops", row, plane.number("flops"))
        details = plane.text("kernel_details")
        for key in ("grid", "block"):
            sizes = _map_distinct_texts(
                details, self._texts, lambda text, key=key: self._texts.id(_parse_detail(text, key))
            )
            self._add_texts(key, row, sizes)
        self._add_numbers(
            "registers",
            row,
            _map_distinct_texts(details, self._texts, lambda text: _parse_integer(_parse_detail(text, "regs"))),
        )
        copied = _map_distinct_texts(
            plane.text("memcpy_details"), self._texts, lambda text: _parse_integer(_parse_detail(text, "size"))
        )
        self._add_numbers("bytes", row, np.where(copied == 0, -1, copied))
        self._add_texts("graph_name", row, plane.text("hlo_op"))

    def _add_numbers(self, name: str, row: Ints, values: Ints) -> None:
        self._builder.arg(name, row[values >= 0], values[values >= 0])

    def _add_texts(self, name: str, row: Ints, values: Ints) -> None:
        self._builder.arg(name, row[values > 0], values[values > 0], text=True)

    def _add_operators(self, plane: Plane, tracks: Ints) -> None:
        """Add an operator for consecutive launches of a thread for one XLA operation.

        The host of a GPU records no operators, but each launch names its operation. The operator lasts from the start
        of the first launch to the end of the last, and gets its name from the user's program if known. It is added
        before the launches, because the first of two events with equal times encloses the other.
        """
        operation = plane.text("hlo_op")
        launch_rows = np.flatnonzero(
            plane.timed & (plane.dur >= 0) & (operation > 0) & (plane.number("correlation_id") > 0)
        )
        if not len(launch_rows):
            return
        launch_rows = launch_rows[np.lexsort((plane.ts[launch_rows], plane.line[launch_rows]))]
        key = np.stack([plane.line[launch_rows], operation[launch_rows], plane.number("program_id")[launch_rows]])
        first_launch = np.flatnonzero(np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0)))
        ts, end = (
            plane.ts[launch_rows[first_launch]],
            np.maximum.reduceat(plane.ts[launch_rows] + plane.dur[launch_rows], first_launch),
        )
        path = plane.text("name")[launch_rows[first_launch]]
        name = _map_distinct_texts(path, self._texts, lambda text: self._texts.id(text.rstrip("/").rpartition("/")[2]))
        row = self._rows + np.arange(len(first_launch))
        self._rows += len(first_launch)
        self._builder.events(
            ts=ts,
            dur=end - ts,
            name=np.where(path > 0, name, operation[launch_rows[first_launch]]),
            category=Category.OP,
            track=tracks[plane.line[launch_rows[first_launch]]],
            row=row,
        )
        self._add_texts("graph_name", row, operation[launch_rows[first_launch]])


def _track_kind(line: str, kind: str) -> TrackKind:
    """Return the kind of track of a line; `kind` is that of the device, "" for the host."""
    if not kind:
        return TrackKind.THREAD
    return TrackKind.GPU_ANNOTATION if is_derived_line(line, kind) else TrackKind.STREAM


def _map_distinct_texts(ids: Ints, texts: StringTable, convert: Callable[[str], int]) -> Ints:
    """Return (n,) the converted texts, converting each distinct text once."""
    distinct, index = np.unique(ids, return_inverse=True)
    return np.array([convert(texts.text(i)) for i in distinct.tolist()], np.int64)[index]


def _parse_detail(text: str, key: str) -> str:
    """Return `32,1,1` for `grid` in `grid:32,1,1 block:64,1,1`."""
    return dict(_DETAIL.findall(text)).get(key, "")


def _parse_integer(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 19 else -1


FORMAT = Format("xspace", "JAX", 30, sniff, read, start=start, suffixes=(".xplane.pb",))
