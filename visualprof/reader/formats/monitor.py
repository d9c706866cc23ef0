"""The monitor's samples of a remote run, `monitor.jsonl`: phases as slices, numbers as counters.

The first line is a header of schema `visualprof.monitor/1`; the prototype wrote none and had other keys.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from operator import attrgetter
from typing import Annotated, Any, cast

import msgspec
import numpy as np

from visualprof.errors import EmptyFile, FormatError
from visualprof.reader.builder import TraceBuilder
from visualprof.reader.chrome_json import json_object, json_objects
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Device, Floats, Ids, Ints, TrackKind
from visualprof.reader.trace_types import Values

MAX_LINE = 1 << 20
MAX_GPUS = 64
MAX_TEXT = 200
ASSUMED_INTERVAL_NS = 100_000_000

_Time = Annotated[int, msgspec.Meta(gt=0, lt=2**62)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, lt=4e9)]


class Gpu(msgspec.Struct, gc=False):
    """One GPU at one moment; shares are 0..1. throttle: text, a list of texts, or NVML's bits."""

    util: float | None = None
    mem_util: float | None = None
    sm_mhz: float | None = None
    mem_mhz: float | None = None
    memory_bytes: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: msgspec.Raw = msgspec.Raw()


class Sample(msgspec.Struct, gc=False):
    """One line. The prototype has `t` (epoch s), percents, and `rss`, `p_cpu`, `ictx`."""

    t_ns: _Time | None = None
    t: _Seconds | None = None
    phase: str | None = None
    batch: int | None = None
    cpu: float | None = None
    child_cpu: float | None = None
    steal: float | None = None
    p_cpu: float | None = None
    load1: float | None = None
    pressure: float | None = None
    rss_bytes: float | None = None
    rss: float | None = None
    involuntary_switches: float | None = None
    ictx: float | None = None
    gpus: list[Gpu | None] | None = None


# (key, name of the counter, factor). A name ends in its unit; the timeline shows those with "bytes" as sizes.
HOST = (
    ("cpu", "CPU %", 100.0), ("child_cpu", "child CPU %", 100.0), ("load1", "load", 1.0),
    ("pressure", "CPU pressure %", 100.0), ("rss_bytes", "RSS bytes", 1.0),
    ("involuntary_switches", "involuntary switches", 1.0),
)  # fmt: skip
PROTOTYPE = (
    ("cpu", "CPU %", 1.0), ("p_cpu", "child CPU %", 1.0), ("steal", "steal %", 1.0), ("load1", "load", 1.0),
    ("rss", "RSS bytes", 1.0), ("ictx", "involuntary switches", 1.0),
)  # fmt: skip
ON_GPU = (
    ("util", "utilization %", 100.0), ("mem_util", "mem utilization %", 100.0), ("sm_mhz", "SM clock MHz", 1.0),
    ("mem_mhz", "mem clock MHz", 1.0), ("memory_bytes", "memory bytes", 1.0), ("power_w", "power W", 1.0),
    ("temperature_c", "temperature C", 1.0),
)  # fmt: skip
# NVML's nvmlClocksEventReason*; idle clocks, a user's setting and display clocks do not slow a run down.
REASON_BITS = {0x4: "power cap", 0x8: "hw slowdown", 0x20: "sw thermal", 0x40: "hw thermal", 0x80: "hw power brake"}
HARMLESS = re.compile(
    r"^(|none|0|null|(gpu_?)?idle|applications?_clocks?_settings?|sync_?boost|display_clocks?(_settings?)?)$"
)
_HEADER = re.compile(rb'^\s*\{[^\n]{0,400}"schema"\s*:\s*"visualprof\.monitor/\d+"')
_SAMPLE = re.compile(rb'^\s*\{\s*"t(_ns)?"\s*:\s*[0-9.eE+]+\s*,\s*"phase"\s*:')
_BATCH = re.compile(r"^.+:b\d+$")


def sniff(head: bytes) -> bool:
    """A header of the monitor's schema, or a sample as the first line."""
    start = head.removeprefix(b"\xef\xbb\xbf")
    return bool(_HEADER.match(start) or _SAMPLE.match(start))


def read(source: Source, builder: TraceBuilder) -> None:
    """Reads a file; times are Unix ns. A phase lasts until the first sample of the next one."""
    columns = _Columns()
    for block, whole in _blocks(source):
        columns.add(block, whole)
    if columns.rows == 0:
        raise EmptyFile(f"{source.name} has no samples yet", "it opens by itself once the first one is written")
    header = columns.header
    interval = _interval(header)
    ts, order = columns.times()
    end = int(ts[-1]) + (interval or ASSUMED_INTERVAL_NS)
    pid = str(header.get("pid", ""))[:MAX_TEXT]
    shown = _add_phases(builder, columns, ts, order, end, pid)
    for key, name, factor in HOST if columns.dated_in_ns else PROTOTYPE:
        _add_counter(builder, name, ts, columns.numbers(key)[order] * factor, pid)
    _add_gpus(builder, columns, ts, order, end, shown)
    if columns.bad:
        builder.warn(f"{columns.bad:,} lines are no samples and were left out; the first: {columns.first_bad}")
    if columns.cut:
        builder.warn("the file ends in the middle of a line; is it still being written?")
    builder.describe(
        framework="",  # it says how the machine was, whatever ran on it
        producer="visualprof monitor",
        device_type="cuda" if columns.gpus else "cpu",
        devices=tuple(Device(i, name) for i, (_, name) in enumerate(_gpu_names(header, columns.gpus))),
        clock_origin_ns=0,
        truncated=columns.cut,
        properties={"interval_ns": str(interval)} if interval else {},
    )


def _blocks(source: Source) -> Iterator[tuple[bytes, bool]]:
    """Whole lines in pieces of about 1 MiB, and what stands after the last line's end, which may be half a line."""
    rest = b""
    for piece in source.chunks():
        block, newline, rest = (rest + piece).rpartition(b"\n")
        if newline:
            yield block, True
        if len(rest) > MAX_LINE:
            raise FormatError(f"{source.name}: a line of over {MAX_LINE >> 20} MiB", "is it the monitor's file?")
    if rest.strip():
        yield rest, False


class _Columns:
    """Grows the columns block by block; a day at 100 ms is 864,000 samples."""

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self.rows = 0
        self.gpus = 0
        self.bad = 0
        self.first_bad = ""
        self.cut = False
        self.dated_in_ns = False
        self._decoder = msgspec.json.Decoder(Sample, strict=False)
        self._times: list[Ints] = []
        self._parts: defaultdict[str, list[tuple[int, Values]]] = defaultdict(list)
        self._phases: defaultdict[tuple[str, int | None], int] = defaultdict(count().__next__)
        self._reasons: defaultdict[bytes, int] = defaultdict(count().__next__)
        self._reasons[b""]

    def add(self, block: bytes, whole: bool) -> None:
        """The samples of some lines. whole: the last line has its end."""
        samples = self._decode(block, whole)
        samples = [s for s in samples if s.t_ns is not None or s.t is not None]
        if not samples:
            return
        self.dated_in_ns |= samples[0].t_ns is not None
        times = [s.t_ns if s.t_ns is not None else round((s.t or 0) * 1e9) for s in samples]
        self._times.append(np.array(times, np.int64))
        phase, batch = attrgetter("phase"), attrgetter("batch")
        keys = [(str(phase(s) or "")[:MAX_TEXT], batch(s)) for s in samples]
        self._keep("phase", np.fromiter(map(self._phases.__getitem__, keys), np.int32, len(keys)))
        for key in {k for k, _, _ in (*HOST, *PROTOTYPE)}:
            self._keep(key, np.array(list(map(attrgetter(key), samples)), np.float64))
        self._add_gpus(samples)
        self.rows += len(samples)

    def _decode(self, block: bytes, whole: bool) -> list[Sample]:
        if not self.rows and not self.header:
            first, _, rest = block.partition(b"\n")
            if b'"schema"' in first:
                self.header, block = _object(first), rest
        try:
            return self._decoder.decode_lines(block)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._decode_one_by_one(block.split(b"\n"), whole)

    def _decode_one_by_one(self, lines: list[bytes], whole: bool) -> list[Sample]:
        found: list[Sample] = []
        for i, line in enumerate(lines):
            try:
                found.extend(self._decoder.decode_lines(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # noqa: PERF203 - each alone
                if i == len(lines) - 1 and not whole:
                    self.cut = True
                    continue
                self.bad += 1
                self.first_bad = self.first_bad or str(error)[:MAX_TEXT]
        return found

    def _add_gpus(self, samples: Sequence[Sample]) -> None:
        """The GPUs by their place in the list."""
        here = min(MAX_GPUS, max(len(s.gpus) if s.gpus else 0 for s in samples))
        self.gpus = max(self.gpus, here)
        nothing = Gpu()
        for i in range(here):
            gpus = [(s.gpus[i] or nothing) if s.gpus and len(s.gpus) > i else nothing for s in samples]
            for key, _, _ in ON_GPU:
                self._keep(f"{i}.{key}", np.array(list(map(attrgetter(key), gpus)), np.float64))
            reasons = map(self._reasons.__getitem__, (bytes(g.throttle)[:MAX_TEXT] for g in gpus))
            self._keep(f"{i}.throttle", np.fromiter(reasons, np.int32, len(gpus)))

    def _keep(self, key: str, values: Values) -> None:
        self._parts[key].append((self.rows, values))

    def times(self) -> tuple[Ints, Ints]:
        """Times in order, and the places of the samples in that order; a clock that was set back mixes them."""
        ts = np.concatenate(self._times)
        order = np.argsort(ts, kind="stable").astype(np.int64)
        return ts[order], order

    def numbers(self, key: str) -> Floats:
        """A number of every sample, NaN where it is unknown."""
        return self._joined(key, np.full(self.rows, np.nan))

    def ids(self, key: str) -> Ids:
        """Phase or throttle reasons of every sample."""
        return self._joined(key, np.zeros(self.rows, np.int32))

    def _joined(self, key: str, out: Values) -> Values:
        for first, values in self._parts.get(key, ()):
            out[first : first + len(values)] = values
        return out

    def phases(self) -> list[tuple[str, int | None]]:
        """Phase and batch by id."""
        return list(self._phases)

    def reasons(self) -> list[str]:
        """What slowed the GPU down, by id; "" nothing."""
        return [_reasons(raw) for raw in self._reasons]


def _add_phases(builder: TraceBuilder, columns: _Columns, ts: Ints, order: Ints, end: int, pid: str) -> int:
    """A slice for each phase, their number; each measured batch is a step."""
    phases = columns.phases()
    names = [phase if batch is None else f"{phase} batch {batch}" for phase, batch in phases]
    measured = [bool(p == "measuring" and b is not None) or bool(_BATCH.match(p)) for p, b in phases]
    track = builder.track(TrackKind.THREAD, "phases", pid)
    kind = columns.ids("phase")[order]
    first = _changes(kind)
    start, stop = ts[first], np.append(ts[first[1:]], end)
    category = np.where(np.array(measured)[kind[first]], Category.STEP, Category.SESSION)
    builder.events(
        ts=start,
        dur=stop - start,
        name=builder.strings(names)[kind[first]],
        category=category,
        track=np.full(len(first), track),
        row=np.arange(len(first)),
    )
    for i in np.flatnonzero(category == Category.STEP).tolist():
        phase, batch = phases[int(kind[first[i]])]
        builder.step(phase if batch is None else f"batch {batch}", int(start[i]), int(stop[i] - start[i]), track)
    return len(first)


def _add_counter(builder: TraceBuilder, name: str, ts: Ints, values: Floats, pid: str, process: str = "") -> None:
    known = np.isfinite(values)
    if known.any():
        track = builder.track(TrackKind.COUNTER, name, pid, process=process)
        builder.counter(track, ts[known], values[known])


def _add_gpus(builder: TraceBuilder, columns: _Columns, ts: Ints, order: Ints, end: int, row: int) -> None:
    for i, (short, long) in enumerate(_gpu_names(columns.header, columns.gpus)):
        for key, name, factor in ON_GPU:
            _add_counter(builder, f"{short} {name}", ts, columns.numbers(f"{i}.{key}")[order] * factor, short, long)
        kind = columns.ids(f"{i}.throttle")[order]
        row += _add_throttling(builder, f"{short} throttled", np.array(columns.reasons()), kind, ts, end, row)


def _add_throttling(builder: TraceBuilder, label: str, reasons: Values, kind: Ids, ts: Ints, end: int, row: int) -> int:
    """A slice for each time in which something held the clocks down, numbered from `row`; their number."""
    slowed = reasons[kind] != ""
    if not slowed.any():
        return 0
    told = ", ".join(np.unique(reasons[kind[slowed]]).tolist())[:MAX_TEXT]
    builder.warn(f"{label} in {slowed.mean():.0%} of the samples: {told}")
    first = _changes(kind)
    stop = np.append(ts[first[1:]], end)
    keep = slowed[first]
    n = int(keep.sum())
    builder.events(
        ts=ts[first][keep],
        dur=(stop - ts[first])[keep],
        name=builder.strings(reasons.tolist())[kind[first[keep]]],
        category=np.full(n, int(Category.OTHER)),
        track=np.full(n, builder.track(TrackKind.THREAD, label)),
        row=row + np.arange(n),
    )
    return n


def _changes(kind: Ids) -> Ints:
    """Places at which a value differs from the one before, the first included."""
    return np.flatnonzero(np.concatenate(([True], kind[1:] != kind[:-1]))).astype(np.int64)


def _gpu_names(header: dict[str, Any], gpus: int) -> list[tuple[str, str]]:
    """Id and name of each GPU."""
    told = json_objects(header.get("gpus"))
    entries = [told[i] if i < len(told) else {} for i in range(gpus)]
    return [(str(e.get("id", f"GPU {i}"))[:MAX_TEXT], str(e.get("name", ""))[:MAX_TEXT]) for i, e in enumerate(entries)]


def _interval(header: dict[str, Any]) -> int:
    """Nanoseconds between samples, 0 where the header does not say."""
    told = header.get("interval_ms")
    return round(told * 1e6) if isinstance(told, (int, float)) and 0 < told < 1e7 else 0


def _object(line: bytes) -> dict[str, Any]:
    try:
        return json_object(msgspec.json.decode(line))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def _reasons(raw: bytes) -> str:
    """Throttle reasons as one text, "" when there is nothing worth a word."""
    try:
        value: Any = msgspec.json.decode(raw) if raw else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    if isinstance(value, int):
        return ", ".join(text for bit, text in REASON_BITS.items() if value & bit and value is not True)
    listed = cast("list[object]", value) if isinstance(value, list) else str(value or "").split(",")
    words = [str(word).strip() for word in listed]
    return ", ".join(word for word in words if not HARMLESS.match(word.lower().replace(" ", "_")))


FORMAT = Format("monitor", 5, sniff, read)
