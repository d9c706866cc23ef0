"""Memory snapshots: reading a million entries of 40 frames, and the state at a moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.rows import Row
from benchmarks.snapshot_file import write_snapshot

ENTRIES, FRAMES = 1_000_000, 40
# One process per way, because the peak of a process never falls.
READ = """
import json, resource, sys, time
from pathlib import Path
from visualprof.reader.formats.torch_snapshot import read_snapshot
from visualprof.reader.memory_snapshot.state import rebuild
unit = 1 if sys.platform == "darwin" else 1024
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
before, data = peak(), Path(sys.argv[1]).read_bytes()
start = time.process_time()
snapshot = read_snapshot(data)
columns, beyond = time.process_time() - start, peak() - before - len(data)
rebuild(snapshot.devices[0], snapshot.settings)
print(json.dumps([columns, time.process_time() - start, beyond, len(snapshot.devices[0].entries)]))
"""
MOMENT = """
import json, sys, time
import visualprof
from visualprof.views.measure.heap.moment import moment, totals
from visualprof.views.measure.heap.stacked import make_tile
from visualprof.views.measure.heap.block_filter import NO_FILTER
trace = visualprof.read_trace(sys.argv[1])
def best(function):
    took = []
    for number in range(20):
        start = time.perf_counter()
        function(number)
        took.append(time.perf_counter() - start)
    return sorted(took)[10]
heap = trace.heap
make_tile(trace, 0, NO_FILTER, 12, 0)
at = lambda number: totals(heap, moment(heap, 0, number * len(heap.entries) // 20))
print(json.dumps([best(at), best(lambda number: make_tile(trace, 0, NO_FILTER, 4, number))]))
"""


def snapshots(folder: Path) -> Iterator[Row]:
    """Yield the cost of reading, natively and without a compiler, and of moments and tiles."""
    path = write_snapshot(folder / "large.pickle", ENTRIES, FRAMES)
    what = f"memory snapshot, {ENTRIES:,} entries of {FRAMES} frames, {path.stat().st_size / 1e6:.0f} MB"
    for native, limit_s, limit_bytes in (("1", 1.0, 100e6), ("0", 8.0, None)):
        cpu, cpu_all, beyond, entries = _measured(READ, path, VISUALPROF_NATIVE=native)
        assert entries == ENTRIES
        label = "to columns" if native == "1" else "to columns without a compiler"
        bar = f"at most {limit_s:.0f} s{'' if limit_bytes is None else ' and 100 MB'}"
        ok = cpu <= limit_s and (limit_bytes is None or beyond <= limit_bytes)
        yield Row(f"{what}: {label}", f"CPU {cpu:.2f} s, file + {beyond / 1e6:.0f} MB", bar, ok)
        if native == "1":
            yield Row(f"{what}: to lifetimes", f"CPU {cpu_all:.2f} s", "at most 1 s", cpu_all <= 1)
    state, tile = _measured(MOMENT, path)
    yield Row(f"{what}: state at a moment", f"{state * 1e3:.1f} ms", "at most 5 ms", state <= 0.005)
    yield Row(f"{what}: a tile of stacked allocations", f"{tile * 1e3:.1f} ms", "at most 20 ms", tile <= 0.02)
    path.unlink()


def _measured(script: str, path: Path, **environment: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return json.loads(done.stdout)
