"""torch's memory timeline (`export_memory_timeline("x.raw.json.gz")`): a list of [time, action, bytes, category].

Codes of torch/profiler/_memory_profiler.py: actions in the order of its enum from 1, categories in that of its colours.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from visualprof.errors import FormatError
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import NO_ADDRESS, Category, Device, Ints, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

ACTIONS = ("", "PREEXISTING", "CREATE", "INCREMENT_VERSION", "DESTROY")
CATEGORIES = (
    "parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd", "unknown",
)  # fmt: skip
MAX_BYTES = 1 << 30  # 40 bytes an event


def sniff(head: bytes) -> bool:
    """A list of lists of four numbers, the second an action and the last a category."""
    return bool(re.match(rb"[\xef\xbb\xbf\s]*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]", head))


def read(source: Source, builder: TraceBuilder) -> None:
    """Reads a file; times are Unix ns, -1 for what was there before.

    A new version of a tensor is a release from its old category and an allocation in the new one. The file has no
    addresses, so that no release can be told to be that of an allocation, and does not name its device.
    """
    table, truncated = _load(source)
    action, category = table[:, 1], table[:, 3]
    good = (action >= 1) & (action <= 4) & (category >= 0) & (category < len(CATEGORIES))
    if not good.all():
        builder.warn(f"{int((~good).sum()):,} entries have an unknown action or category and were left out")
    ts, action, size, category = (table[good, i] for i in range(4))
    known = ts >= 0
    first = int(ts[known].min()) if known.any() else 0
    ts = np.where(known, ts, first)
    rows = np.arange(len(ts))
    track = builder.track(TrackKind.THREAD, "memory")
    builder.events(
        ts=ts,
        dur=np.full(len(ts), -1),
        name=builder.strings(ACTIONS)[action],
        category=np.full(len(ts), int(Category.MEMORY)),
        track=np.full(len(ts), track),
        row=rows,
    )
    builder.allocs(
        ts=ts,
        addr=np.full(len(ts), NO_ADDRESS, np.uint64),
        bytes=size,
        device=np.zeros(len(ts), np.int32),
        event=rows,
        category=builder.strings(CATEGORIES)[category],
        complete=True,
    )
    if truncated:
        builder.warn(f"the file ends in the middle, after entry {len(table):,}; is it still being written?")
    builder.describe(
        framework="pytorch",
        producer="torch.profiler memory timeline",
        device_type="cuda",
        devices=(Device(0),),
        clock_origin_ns=0,
        truncated=truncated,
    )


def _load(source: Source) -> tuple[Ints, bool]:
    """(n, 4) int64, and whether the file was cut."""
    data = source.whole(MAX_BYTES, "a memory timeline", "was it made by torch.profiler?")
    rows = _decode(data)
    cut = rows is None
    if cut:
        rows = _decode(data[: data.rfind(b"]") + 1] + b"]")
    if rows is None:
        raise FormatError(
            f"{source.name}: not a list of [time, action, bytes, category]", "was it made by torch.profiler?"
        )
    return rows, cut


def _decode(text: bytes) -> Ints | None:
    try:
        rows = msgspec.json.decode(text, type=list[tuple[int, int, int, int]])
        return np.array(rows, np.int64).reshape(-1, 4)
    except (msgspec.DecodeError, OverflowError, UnicodeDecodeError):
        return None


FORMAT = Format("torch-memory", "torch.profiler", 15, sniff, read)
