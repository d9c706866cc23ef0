"""torch's memory timeline (`export_memory_timeline("x.raw.json.gz")`): a list of [time, action, bytes, category].

Codes of torch/profiler/_memory_profiler.py: actions in the order of its enum from 1, categories in that of its colours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from visualprof.reader.chrome.values import UNDECODABLE
from visualprof.reader.registry import Format
from visualprof.reader.source import Skipped, Source
from visualprof.reader.trace import Category, Device, Ints, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

ACTIONS = ("", "PREEXISTING", "CREATE", "INCREMENT_VERSION", "DESTROY")
CATEGORIES = (
    "parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd", "unknown",
)  # fmt: skip
MAX_BYTES = 1 << 30  # 40 bytes an event
_ENTRY = re.compile(rb"\[%s\]" % b",".join([rb"\s*(-?\d{1,19})\s*"] * 4))


def sniff(head: bytes) -> bool:
    """A list of lists of four numbers, the second an action and the last a category."""
    return bool(re.match(rb"[\xef\xbb\xbf\s]*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]", head))


def read(source: Source, builder: TraceBuilder) -> None:
    """Reads a file; times are Unix ns, -1 for what was there before.

    A new version of a tensor is a release from its old category and an allocation in the new one. The file has no
    addresses, so that no release can be told to be that of an allocation, and does not name its device.
    """
    table, truncated = _load(source, builder)
    action, category = table[:, 1], table[:, 3]
    good = (action >= 1) & (action <= 4) & (category >= 0) & (category < len(CATEGORIES))
    if not good.all():
        builder.warn(f"{int((~good).sum()):,} entries have an unknown action or category and were left out")
    ts, action, size, category = (table[good, i] for i in range(4))
    known = ts >= 0
    first = int(ts[known].min()) if known.any() else 0
    ts = np.where(known, ts, first)
    rows = np.arange(len(ts))
    builder.events(
        ts=ts,
        dur=-1,
        name=builder.strings(ACTIONS)[action],
        category=Category.MEMORY,
        track=builder.track(TrackKind.THREAD, "memory"),
        row=rows,
    )
    builder.allocs(
        ts=ts,
        bytes=size,
        device=0,
        event=rows,
        category=builder.strings(CATEGORIES)[category],
        complete=True,
    )
    if truncated:
        builder.warn(f"the file ends in the middle, after entry {len(table):,}")
    builder.describe(
        framework="pytorch",
        producer="torch.profiler memory timeline",
        device_type="cuda",
        devices=(Device(0),),
        clock_origin_ns=0,
        truncated=truncated,
    )


def _load(source: Source, builder: TraceBuilder) -> tuple[Ints, bool]:
    """(n, 4) int64, and whether the file was cut."""
    data = source.whole(MAX_BYTES, "a memory timeline", "was it made by torch.profiler?")
    try:
        return _table(msgspec.json.decode(data, type=list[tuple[int, int, int, int]])), False
    except (*UNDECODABLE, OverflowError):
        return _whole_entries(data, builder)


def _whole_entries(data: bytes, builder: TraceBuilder) -> tuple[Ints, bool]:
    """As `_load`, of a file that is cut or damaged: every entry that can be read (1 us each)."""
    skipped, rows, done = Skipped(), list[list[int]](), data.find(b"[") + 1
    for entry in _ENTRY.finditer(data):
        numbers = [int(number) for number in entry.groups()]
        if max(map(abs, numbers)) >= 2**63:
            continue
        if data[done : entry.start()].strip(b" \t\r\n,"):
            skipped.add(done, entry.start() - done)
        rows.append(numbers)
        done = entry.end()
    rest = data[done:].strip(b" \t\r\n,")
    if rest.endswith(b"]") and rest != b"]":
        skipped.add(done, len(data) - done)
    if skipped.parts:
        builder.warn(skipped.sentence())
    return _table(rows), not rest.endswith(b"]")


def _table(rows: Sequence[Sequence[int]]) -> Ints:
    return np.array(rows, np.int64).reshape(-1, 4)


FORMAT = Format("torch-memory", "torch.profiler", 15, sniff, read)
