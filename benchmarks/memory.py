"""The memory view of a trace with a million memory events, as the page requests it."""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.kineto_file import HEAD
from benchmarks.rows import Row, measured

OPS = [
    "aten::empty",
    "aten::addmm",
    "aten::convolution",
    "aten::relu",
    "autograd::engine::evaluate_function: AddmmBackward0",
]
FREE_LATER = 4096  # allocations that are alive at a time
MEASURE = """
import statistics, sys, time
from visualprof.reader.cache import open_trace
from visualprof.views.answers.encoding import encode
from visualprof.views import view
from visualprof.views.answers.table import Selection, select_rows
open_trace(sys.argv[1])  # kept now
memory = view("memory")
def seconds(act):
    start = time.perf_counter()
    act()
    return time.perf_counter() - start
def answer():
    trace = open_trace(sys.argv[1])
    result = memory.compute(trace, memory.parse({}))
    encode(result.curve)
    encode(select_rows(result.events, Selection(limit=200)))
    return result
answer()
print(statistics.median(seconds(answer) for _ in range(5)))
result = answer()
events = result.events
print(statistics.median(seconds(lambda: select_rows(events, Selection("lifetime_ns", limit=200))) for _ in range(3)))
search = Selection("name", search={"name": "conv"}, limit=200)
print(statistics.median(seconds(lambda: select_rows(events, search)) for _ in range(3)))
print(len(view("memory").compute(open_trace(sys.argv[1]), memory.parse({})).events))
"""


def write_memory_trace(path: Path, count: int) -> None:
    """Writes a Kineto-like file with `count` memory events, four in each operator: two allocations, two releases."""
    rng = random.Random(7)
    held: list[tuple[int, int]] = []
    total, ts = 1 << 30, 1000
    sizes = [512, 4096, 65536, 1 << 20, 33554432]
    with path.open("w", encoding="utf-8") as file:
        file.write(HEAD)
        file.write('{"ph":"X","cat":"cpu_op","name":"aten::first","pid":1,"tid":1,"ts":1,"dur":1,"args":{}}')
        for i in range(count // 4):
            ts += 50
            name = OPS[i % len(OPS)]
            file.write(
                f',\n{{"ph":"X","cat":"cpu_op","name":"{name}","pid":1,"tid":1,"ts":{ts},"dur":40,'
                f'"args":{{"External id":{i}}}}}'
            )
            for k in range(4):
                if k < 2 or len(held) < FREE_LATER:
                    nbytes, addr = rng.choice(sizes), 139 * 10**12 + (4 * i + k) % (1 << 16) * 33554432
                    held.append((addr, nbytes))
                else:
                    addr, nbytes = held.pop(rng.randrange(len(held)))
                    nbytes = -nbytes
                total += nbytes
                file.write(
                    f',\n{{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,'
                    f'"ts":{ts + 5 + k * 8},"args":{{"Total Reserved":85899345920,"Total Allocated":{total},'
                    f'"Bytes":{nbytes},"Addr":{addr},'
                    f'"Device Id":0,"Device Type":1}}}}'
                )
        file.write("\n]}\n")


def memory_view(path: Path) -> Iterator[Row]:
    """Lines of the report on a file that `write_memory_trace` wrote: what, figure, bar, met."""
    lines: list[list[float]] = []
    for _ in range(3):
        out = measured(
            [sys.executable, "-c", MEASURE, str(path)], VISUALPROF_CACHE_DIR=str(path.parent / "cache-memory")
        ).out
        lines.append([float(line) for line in out.split()])
    first, by_lifetime, search, rows = (statistics.median(column) for column in zip(*lines, strict=True))
    label = f"memory view of {path.stat().st_size / 1e6:.0f} MB ({rows:,.0f} allocations), warm"
    yield Row(f"{label}: curve and first table page", f"{first:.2f} s", "at most 0.5 s", first <= 0.5)
    yield Row("table sorted by lifetime", f"{by_lifetime:.2f} s", "at most 0.5 s", by_lifetime <= 0.5)
    yield Row("table searched by name", f"{search:.2f} s", "at most 0.5 s", search <= 0.5)
