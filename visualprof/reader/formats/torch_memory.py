"""torch's memory timeline (`export_memory_timeline("x.raw.json.gz")`): a list of [time, action, bytes, category].

Codes of torch/profiler/_memory_profiler.py: actions in the order of its enum from 1, categories in that of its colours.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, Device, Ints, TrackKind
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
    for cut, text in ((False, data), (True, data[: data.rfind(b"]") + 1] + b"]")):
        try:
            rows = msgspec.json.decode(text, type=list[tuple[int, int, int, int]])
            return np.array(rows, np.int64).reshape(-1, 4), cut
        except (msgspec.DecodeError, OverflowError, UnicodeDecodeError):  # noqa: PERF203 - twice at most
            continue
    raise source.error("not a list of [time, action, bytes, category]", "was it made by torch.profiler?")


FORMAT = Format("torch-memory", "torch.profiler", 15, sniff, read)
