"""Monitor samples of a remote run, `monitor.jsonl`: phases become slices, numbers become counters.

The first line is a header of schema `visualprof.monitor/1`, the others are samples; a day at 100 ms has 864,000.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from operator import attrgetter
from typing import Annotated, Any, cast

import msgspec
import numpy as np

from visualprof.errors import EmptyFile, SourceError
from visualprof.messages import msg
from visualprof.reader.chrome.values import json_object, json_objects
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format
from visualprof.reader.source import DECODE_ERRORS, SkippedParts, Source
from visualprof.reader.trace import Category, Device, Floats, Ids, Ints, Rows, TrackKind
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.types import Values

MAX_LINE_BYTES = 1 << 20
MAX_GPUS = 64
MAX_TEXT_CHARS = 200
ASSUMED_INTERVAL_NS = 100_000_000

_HEADER = pattern(rb'^\s*\{[^\n]{0,400}"schema"\s*:\s*"visualprof\.monitor/\d+"')
_SAMPLE = pattern(rb'^\s*\{\s*"t_ns"\s*:\s*[0-9]+\s*,\s*"phase"\s*:')
# (key, counter name, factor). A name ends in its unit; the timeline formats names with "bytes" as sizes.
HOST_COUNTERS = (
    ("cpu", "CPU %", 100.0),
    ("child_cpu", "child CPU %", 100.0),
    ("load1", "load", 1.0),
    ("pressure", "CPU pressure %", 100.0),
    ("rss_bytes", "RSS bytes", 1.0),
    ("read_bytes_s", "disk reads bytes/s", 1.0),
    ("written_bytes_s", "disk writes bytes/s", 1.0),
    ("involuntary_switches", "involuntary switches", 1.0),
    ("cpu_power_w", "CPU power W", 1.0),
)
GPU_COUNTERS = (
    ("util", "utilization %", 100.0),
    ("mem_util", "mem utilization %", 100.0),
    ("sm_mhz", "SM clock MHz", 1.0),
    ("mem_mhz", "mem clock MHz", 1.0),
    ("memory_bytes", "memory bytes", 1.0),
    ("power_w", "power W", 1.0),
    ("temperature_c", "temperature C", 1.0),
)
# NVML's nvmlClocksEventReason*. Idle clocks, a user's setting and display clocks do not slow down a run.
REASON_BITS = {0x4: "power cap", 0x8: "hw slowdown", 0x20: "sw thermal", 0x40: "hw thermal", 0x80: "hw power brake"}
HARMLESS_REASON = pattern(
    r"^(|none|0|null|(gpu_?)?idle|applications?_clocks?_settings?|sync_?boost|display_clocks?(_settings?)?)$"
)


class Gpu(msgspec.Struct, gc=False):
    """One GPU at one time; ratios are 0 to 1. `throttle` is a text, a list of texts, or NVML's bits."""

    util: float | None = None
    mem_util: float | None = None
    sm_mhz: float | None = None
    mem_mhz: float | None = None
    memory_bytes: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: msgspec.Raw = msgspec.Raw()


class Sample(msgspec.Struct, gc=False):
    """One line; `t_ns` is Unix time."""

    t_ns: Annotated[int, msgspec.Meta(gt=0, lt=2**62)] | None = None
    phase: str | None = None
    batch: int | None = None
    cpu: float | None = None
    child_cpu: float | None = None
    load1: float | None = None
    pressure: float | None = None
    rss_bytes: float | None = None
    read_bytes_s: float | None = None
    written_bytes_s: float | None = None
    involuntary_switches: float | None = None
    cpu_power_w: float | None = None
    gpus: list[Gpu | None] | None = None


_NO_GPU = Gpu()
_DECODER = msgspec.json.Decoder(Sample, strict=False)


def sniff(head: bytes) -> bool:
    """Return whether the first line is a header of the monitor's schema, or a sample."""
    start = head.removeprefix(b"\xef\xbb\xbf")
    return bool(_HEADER.match(start) or _SAMPLE.match(start))


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. Times are Unix ns. A phase lasts until the first sample of the next one."""
    samples = _Samples()
    try:
        for offset, block, is_complete in _line_blocks(source, samples.skipped):
            samples.add(offset, block, is_complete)
    except SourceError as error:
        if samples.rows == 0:
            raise
        builder.warn(
            msg(
                "formats.what_follows_sample_damaged",
                f"what follows sample {samples.rows:,} is damaged and was left out: {error.error}",
            )
        )
    if samples.rows == 0 and samples.skipped.count:
        lines = samples.skipped.sentence(msg("formats.damaged_line", "damaged line"))
        raise source.error(msg("formats.no_sample_can_read", f"no sample can be read: {lines}"), samples.first_problem)
    if samples.rows == 0:
        raise EmptyFile(
            msg("formats.no_samples_yet", f"{source.name} has no samples yet"),
            msg("formats.opens_itself_once_first", "it opens automatically once the first sample is written"),
        )
    _TrackWriter(samples, builder).add()
    if samples.skipped.count:
        builder.warn(
            msg("formats.first", "; the first: ").join(
                filter(
                    None, (samples.skipped.sentence(msg("formats.damaged_line", "damaged line")), samples.first_problem)
                )
            )
        )
    if samples.is_truncated:
        builder.warn(msg("formats.file_ends_middle_line", "the file ends in the middle of a line"))


def _line_blocks(source: Source, skipped: SkippedParts) -> Iterator[tuple[int, bytes, bool]]:
    """Yield complete lines in blocks of about 1 MiB with their offsets, and whether the block is complete."""
    rest, offset = b"", 0
    for piece in source.chunks():
        block, newline, rest = (rest + piece).rpartition(b"\n")
        if newline:
            yield offset, block, True
            offset += len(block) + 1
        if len(rest) > MAX_LINE_BYTES:
            skipped.add(offset, len(rest))
            rest, offset = b"", offset + len(rest)
    if rest.strip():
        yield offset, rest, False


class _Samples:
    """Columns of the samples, which grow block by block."""

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self.rows = 0
        self.gpus = 0
        self.skipped = SkippedParts()
        self.first_problem = ""
        self.is_truncated = False
        self._parts: defaultdict[str, list[tuple[int, Values]]] = defaultdict(list)
        self._phases: defaultdict[tuple[str, int | None], int] = defaultdict(count().__next__)
        self._reasons: defaultdict[bytes, int] = defaultdict(count().__next__)
        self._reasons[b""]

    def add(self, offset: int, block: bytes, is_complete: bool) -> None:
        """Add the samples of some lines.

        Args:
            offset: Offset of the lines in the file.
            block: The lines.
            is_complete: The last line is complete.
        """
        samples = self._decode(offset, block, is_complete)
        if not samples:
            return
        self._append("t_ns", np.array([s.t_ns for s in samples], np.int64))
        phases = (self._phases[(s.phase or "")[:MAX_TEXT_CHARS], s.batch] for s in samples)
        self._append("phase", np.fromiter(phases, np.int32, len(samples)))
        for key, _, _ in HOST_COUNTERS:
            self._append(key, np.array(list(map(attrgetter(key), samples)), np.float64))
        self._add_gpus(samples)
        self.rows += len(samples)

    def _decode(self, offset: int, block: bytes, is_complete: bool) -> list[Sample]:
        if not self.rows and not self.header:
            first_line, _, rest = block.partition(b"\n")
            self.header = _parse_header(first_line)
            if self.header:
                offset, block = offset + len(first_line) + 1, rest
        try:
            samples = _DECODER.decode_lines(block)
        except DECODE_ERRORS:
            samples = [Sample()]
        if all(sample.t_ns is not None for sample in samples):
            return samples
        return self._decode_lines(offset, block.split(b"\n"), is_complete)

    def _decode_lines(self, offset: int, lines: list[bytes], is_complete: bool) -> list[Sample]:
        samples: list[Sample] = []
        for i, line in enumerate(lines):
            try:
                decoded = _DECODER.decode_lines(line)
                problem = (
                    msg("formats.no_time", "it has no time") if any(sample.t_ns is None for sample in decoded) else ""
                )
            except DECODE_ERRORS as error:
                decoded, problem = [], str(error)[:MAX_TEXT_CHARS]
            if not problem:
                samples.extend(decoded)
            elif i == len(lines) - 1 and not is_complete:
                self.is_truncated = True
            else:
                self.skipped.add(offset, len(line))
                self.first_problem = self.first_problem or problem
            offset += len(line) + 1
        return samples

    def _add_gpus(self, samples: Sequence[Sample]) -> None:
        """Add the GPUs by their position in the list."""
        gpu_count = min(MAX_GPUS, max(len(s.gpus or ()) for s in samples))
        self.gpus = max(self.gpus, gpu_count)
        for i in range(gpu_count):
            gpus = [(s.gpus[i] or _NO_GPU) if s.gpus and len(s.gpus) > i else _NO_GPU for s in samples]
            for key, _, _ in GPU_COUNTERS:
                self._append(f"{i}.{key}", np.array(list(map(attrgetter(key), gpus)), np.float64))
            reasons = map(self._reasons.__getitem__, (bytes(g.throttle)[:MAX_TEXT_CHARS] for g in gpus))
            self._append(f"{i}.throttle", np.fromiter(reasons, np.int32, len(gpus)))

    def _append(self, key: str, values: Values) -> None:
        self._parts[key].append((self.rows, values))

    def column(self, key: str, missing: float = float("nan")) -> Values:
        """Return a number per sample, or the id of its phase or throttle reasons; `missing` if unknown."""
        parts = self._parts.get(key, ())
        out = np.full(self.rows, missing, parts[0][1].dtype if parts else np.float64)
        for first, values in parts:
            out[first : first + len(values)] = values
        return out

    def phases(self) -> list[tuple[str, int | None]]:
        """Return phase and batch by id."""
        return list(self._phases)

    def reasons(self) -> Values:
        """Return why a GPU was slowed down, by id; "" if it was not."""
        return np.array([_format_reasons(raw) for raw in self._reasons])


class _TrackWriter:
    """Writes the samples as tracks of a trace, sorted by time, because a clock may have been set back."""

    def __init__(self, samples: _Samples, builder: TraceBuilder) -> None:
        interval = samples.header.get("interval_ms")
        self.interval_ns = round(interval * 1e6) if isinstance(interval, (int, float)) and 0 < interval < 1e7 else 0
        self.samples = samples
        self.builder = builder
        ts = samples.column("t_ns", 0)
        self.order = np.argsort(ts, kind="stable")
        self.ts: Ints = ts[self.order]
        self.pid = str(samples.header.get("pid", ""))[:MAX_TEXT_CHARS]
        self.rows = 0

    def add(self) -> None:
        """Add phases, counters, and intervals in which a GPU was slowed down."""
        self._add_phases()
        for key, name, factor in HOST_COUNTERS:
            self._add_counter(name, self.samples.column(key) * factor, self.pid)
        gpus = json_objects(self.samples.header.get("gpus"))
        devices: list[Device] = []
        reasons = self.samples.reasons()
        for i in range(self.samples.gpus):
            entry = gpus[i] if i < len(gpus) else {}
            gpu, name = str(entry.get("id", f"GPU {i}"))[:MAX_TEXT_CHARS], str(entry.get("name", ""))[:MAX_TEXT_CHARS]
            devices.append(Device(i, name))
            for key, label, factor in GPU_COUNTERS:
                self._add_counter(f"{gpu} {label}", self.samples.column(f"{i}.{key}") * factor, gpu, name)
            self._add_throttling(f"{gpu} throttled", reasons, self.samples.column(f"{i}.throttle", 0)[self.order])
        self.builder.describe(
            framework="",  # the samples describe the machine, whatever ran on it
            producer="visualprof monitor",
            device_type="cuda" if devices else "cpu",
            devices=tuple(devices),
            clock_origin_ns=0,
            truncated=self.samples.is_truncated,
            properties={"interval_ns": str(self.interval_ns)} if self.interval_ns else {},
        )

    def _add_phases(self) -> None:
        """Add a slice per phase, and a step per measured batch."""
        phases = self.samples.phases()
        names = [phase if batch is None else f"{phase} batch {batch}" for phase, batch in phases]
        kinds = [Category.STEP if p == "measuring" and b is not None else Category.SESSION for p, b in phases]
        track = self.builder.track(TrackKind.THREAD, "phases", self.pid)
        kind = self.samples.column("phase", 0)[self.order]
        first, dur = self._intervals(kind)
        self._add_slices(track, first, dur, self.builder.strings(names)[kind[first]], np.array(kinds)[kind[first]])
        for row, ns in zip(first.tolist(), dur.tolist(), strict=True):
            if kinds[kind[row]] is Category.STEP:
                self.builder.step(f"batch {phases[kind[row]][1]}", int(self.ts[row]), ns, track)

    def _add_counter(self, name: str, values: Floats, pid: str, process: str = "") -> None:
        values = values[self.order]
        is_number = np.isfinite(values)
        if is_number.any():
            track = self.builder.track(TrackKind.COUNTER, name, pid, process=process)
            self.builder.counter(track, self.ts[is_number], values[is_number])

    def _add_throttling(self, label: str, reasons: Values, kind: Ids) -> None:
        """Add a slice per interval in which the clocks were throttled."""
        is_slowed = reasons[kind] != ""
        if not is_slowed.any():
            return
        causes = ", ".join(np.unique(reasons[kind[is_slowed]]).tolist())[:MAX_TEXT_CHARS]
        self.builder.warn(msg("formats.samples", f"{label} in {is_slowed.mean():.0%} of the samples: {causes}"))
        first, dur = self._intervals(kind)
        first, dur = first[is_slowed[first]], dur[is_slowed[first]]
        names = self.builder.strings(reasons.tolist())[kind[first]]
        track = self.builder.track(TrackKind.THREAD, label)
        self._add_slices(track, first, dur, names, Category.OTHER)

    def _intervals(self, kind: Ids) -> tuple[Ints, Ints]:
        """Return the positions at which the value changes, including the first, and for how long it stays: ns."""
        first = np.flatnonzero(np.concatenate(([True], kind[1:] != kind[:-1])))
        end = int(self.ts[-1]) + (self.interval_ns or ASSUMED_INTERVAL_NS)
        return first, np.append(self.ts[first[1:]], end) - self.ts[first]

    def _add_slices(self, track: int, first: Ints, dur: Ints, name: Ids, category: Rows | int) -> None:
        rows = np.arange(self.rows, self.rows + len(first))
        self.builder.events(ts=self.ts[first], dur=dur, name=name, category=category, track=track, row=rows)
        self.rows += len(first)


def _parse_header(line: bytes) -> dict[str, Any]:
    """Return the first line if it is a header, else an empty object."""
    try:
        return json_object(msgspec.json.decode(line)) if b'"schema"' in line else {}
    except DECODE_ERRORS:
        return {}


def _format_reasons(raw: bytes) -> str:
    """Return throttle reasons as one text, "" if none is relevant."""
    try:
        value: Any = msgspec.json.decode(raw) if raw else None
    except DECODE_ERRORS:
        return ""
    if isinstance(value, int):
        return ", ".join(text for bit, text in REASON_BITS.items() if value & bit and value is not True)
    listed = cast("list[object]", value) if isinstance(value, list) else str(value or "").split(",")
    words = [str(word).strip() for word in listed]
    return ", ".join(word for word in words if not HARMLESS_REASON.match(word.lower().replace(" ", "_")))


FORMAT = Format("monitor", "samples of a remote run", 5, sniff, read)
