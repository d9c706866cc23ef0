"""The lines of a monitor's file as columns; a day at 100 ms is 864,000 of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from operator import attrgetter
from typing import Annotated, Any, cast

import msgspec
import numpy as np

from visualprof.errors import FormatError
from visualprof.reader.chrome.decode import json_object
from visualprof.reader.source import Source
from visualprof.reader.trace.types import Floats, Ids, Ints, Values

MAX_LINE = 1 << 20
MAX_GPUS = 64
MAX_TEXT = 200

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


def blocks(source: Source) -> Iterator[tuple[bytes, bool]]:
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


class MonitorColumns:
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
