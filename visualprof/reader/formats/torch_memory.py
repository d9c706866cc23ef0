"""torch's memory timeline (`export_memory_timeline`), in its two forms.

`x.raw.json.gz` is a list of [time, action, bytes, category]. `x.json` is [times, [0, bytes of each category] per time].
Codes of torch/profiler/_memory_profiler.py: actions in the order of its enum from 1, categories in that of its colors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format
from visualprof.reader.source import DECODE_ERRORS, SkippedParts, Source
from visualprof.reader.trace import Category, Device, Ints, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

ACTIONS = ("", "PREEXISTING", "CREATE", "INCREMENT_VERSION", "DESTROY")
CATEGORIES = (
    "parameter",
    "optimizer_state",
    "input",
    "temporary",
    "activation",
    "gradient",
    "autograd",
    "unknown",
)
ABSURD_BYTES = 1 << 62  # not a size: the builder drops it
MAX_BYTES = 1 << 30  # 40 bytes per event
_TOTALS_START = pattern(rb"[\xef\xbb\xbf\s]*\[\s*\[\s*\d{9,}\s*(,\s*\d{9,}|\]\s*,\s*\[\s*\[)")
_TOTALS_ENTRY = pattern(rb"\[%s\]" % b",".join([rb"\s*(-?\d{1,19})\s*"] * (1 + len(CATEGORIES))))
_ENTRY = pattern(rb"\[%s\]" % b",".join([rb"\s*(-?\d{1,19})\s*"] * 4))


def sniff(head: bytes) -> bool:
    """Return whether this is a list of [number, action, number, category], or starts with a list of times."""
    entry = re.match(rb"[\xef\xbb\xbf\s]*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]", head)
    return bool(entry or _TOTALS_START.match(head))


def read(source: Source, builder: TraceBuilder) -> None:
    """Read a file. Times are Unix ns (us for totals), -1 for memory from before the recording.

    A new version of a tensor is a release in its old category and an allocation in the new one. The file has no
    addresses, so a release cannot be matched with its allocation, and it does not name its device.
    """
    data = source.read_all(
        MAX_BYTES,
        msg("formats.memory_timeline", "a memory timeline"),
        msg("formats.made_torch_profiler", "was it made by torch.profiler?"),
    )
    table, truncated = (_parse_totals if _TOTALS_START.match(data) else _parse_entries)(data, builder)
    action, category = table[:, 1], table[:, 3]
    valid = (action >= 1) & (action <= 4) & (category >= 0) & (category < len(CATEGORIES))
    if not valid.all():
        builder.warn(
            msg(
                "formats.entries_unknown_action_category",
                f"{int((~valid).sum()):,} entries have an unknown action or category and were left out",
            )
        )
    ts, action, size, category = (table[valid, i] for i in range(4))
    has_time = ts >= 0
    first = int(ts[has_time].min()) if has_time.any() else 0
    ts = np.where(has_time, ts, first)
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
        builder.warn(msg("formats.file_ends_middle_after", f"the file ends in the middle, after entry {len(table):,}"))
    builder.describe(
        framework="pytorch",
        producer="torch.profiler memory timeline",
        device_type="cuda",
        devices=(Device(0),),
        clock_origin_ns=0,
        truncated=truncated,
    )


def _parse_entries(data: bytes, builder: TraceBuilder) -> tuple[Ints, bool]:
    """Return the entries, (n, 4) int64, and whether the file is truncated."""
    try:
        return _table(msgspec.json.decode(data, type=list[tuple[int, int, int, int]])), False
    except (*DECODE_ERRORS, OverflowError):
        return _recover_entries(data, builder)


def _recover_entries(data: bytes, builder: TraceBuilder) -> tuple[Ints, bool]:
    """Return the readable entries of a truncated or damaged file, like `_parse_entries` (1 us per entry)."""
    skipped, rows, offset = SkippedParts(), list[list[int]](), data.find(b"[") + 1
    for entry in _ENTRY.finditer(data):
        numbers = [int(number) for number in entry.groups()]
        if max(map(abs, numbers)) >= 2**63:
            continue
        if data[offset : entry.start()].strip(b" \t\r\n,"):
            skipped.add(offset, entry.start() - offset)
        rows.append(numbers)
        offset = entry.end()
    rest = data[offset:].strip(b" \t\r\n,")
    if rest.endswith(b"]") and rest != b"]":
        skipped.add(offset, len(data) - offset)
    if skipped.count:
        builder.warn(skipped.sentence())
    return _table(rows), not rest.endswith(b"]")


def _parse_totals(data: bytes, builder: TraceBuilder) -> tuple[Ints, bool]:
    """Return the changes between totals, (n, 4) int64, and whether the file is truncated (5 us per total)."""
    try:
        times, totals = msgspec.json.decode(data, type=tuple[list[int], list[list[int]]])
        complete = len(times) == len(totals) and all(len(sizes) == 1 + len(CATEGORIES) for sizes in totals)
    except DECODE_ERRORS:
        times, totals, complete = list[int](), list[list[int]](), False
    if not complete:
        times, totals = _recover_totals(data)
    truncated = not data.rstrip().endswith(b"]]")
    if not complete and not truncated:
        builder.warn(
            msg(
                "formats.file_damaged_after_totals",
                f"the file is damaged after {len(totals):,} of {len(times):,} totals; what follows was left out",
            )
        )
    entries: list[tuple[int, int, int, int]] = []
    previous = [0] * len(CATEGORIES)
    for i, (us, (_, *sizes)) in enumerate(zip(times, totals, strict=False)):
        ts = max(0, min(us, 2**53)) * 1000
        is_preexisting = i == 0 and times[:1] == times[1:2]  # memory from before has the time of the first event
        entries += _changes(
            ts,
            [max(-ABSURD_BYTES, min(ABSURD_BYTES, b - a)) for a, b in zip(previous, sizes, strict=True)],
            1 if is_preexisting else 2,
        )
        previous = sizes
    return _table(entries), truncated


def _recover_totals(data: bytes) -> tuple[list[int], list[list[int]]]:
    """Return the times, and the totals up to the first damage."""
    end = data.find(b"]")
    times = [int(t) for t in re.findall(rb"\d{1,19}", data[: end if end >= 0 else len(data)])]
    totals: list[list[int]] = []
    offset = data.find(b"[", end) + 1
    for sizes in _TOTALS_ENTRY.finditer(data, offset):
        if data[offset : sizes.start()].strip(b" \t\r\n,"):
            break
        totals.append([int(size) for size in sizes.groups()])
        offset = sizes.end()
    return times, totals


def _changes(ts: int, change: list[int], create_action: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the changes at one time.

    Memory moves from one category to another as far as possible, the rest comes or goes.
    """
    decreases = [(-size, category) for category, size in enumerate(change) if size < 0]
    increases = [(size, category) for category, size in enumerate(change) if size > 0]
    while decreases and increases:
        (decrease, source), (increase, target) = decreases.pop(), increases.pop()
        moved = min(decrease, increase)
        yield from ((ts, 3, -moved, source), (ts, 3, moved, target))
        decreases += [(decrease - moved, source)] * (decrease > moved)
        increases += [(increase - moved, target)] * (increase > moved)
    yield from ((ts, 4, -size, category) for size, category in decreases)
    yield from ((ts, create_action, size, category) for size, category in increases)


def _table(rows: Sequence[Sequence[int]]) -> Ints:
    return np.array(rows, np.int64).reshape(-1, 4)


FORMAT = Format("torch-memory", "torch.profiler", 15, sniff, read)
