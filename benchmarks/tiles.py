"""Tiles of the timeline on the server: the cost of their levels, and the time of a cached tile."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

from benchmarks.rows import Row

INGEST = """
import sys, time
import visualprof
from visualprof.reader.trace import builder
build, took = builder.build_pyramid, []
def timed(*columns):
    start = time.perf_counter()
    built = build(*columns)
    took.append(time.perf_counter() - start)
    return built
builder.build_pyramid = timed
start = time.perf_counter()
visualprof.read_trace(sys.argv[1])
print(sum(took), time.perf_counter() - start)
"""
TILES = 400


def levels(path: Path) -> Iterator[Row]:
    """Rows of what, figure, bar, met: building the levels beside reading the file."""
    done = subprocess.run([sys.executable, "-c", INGEST, str(path)], capture_output=True, text=True, check=True)
    built, ingest = map(float, done.stdout.split())
    ratio = built / ingest
    yield Row(
        "timeline: building its levels",
        f"{built * 1e3:.0f} ms = {ratio:.3f} x reading the file ({ingest:.1f} s)",
        "at most 0.25 x",
        ratio <= 0.25,
    )


def tiles(address: str, run: str) -> Iterator[Row]:
    """The same of warm tiles over HTTP, one after the other, as the page asks for them."""
    meta = json.loads(urllib.request.urlopen(f"{address}/api/v1/timeline/meta?{urlencode({'run': run})}").read())
    groups = sorted({track["group"] for track in meta["tracks"]})
    coarsest = max(0, (meta["duration_ns"] // meta["tile_buckets"]).bit_length())
    rng = random.Random(7)
    took, sizes = [], []
    for attempt in range(TILES + 20):
        level = rng.randint(0, coarsest)
        index = rng.randrange(max(1, meta["duration_ns"] // (meta["tile_buckets"] << level)))
        query = {"run": run, "v": meta["version"], "group": rng.choice(groups), "level": level, "index": index}
        start = time.perf_counter()
        body = urllib.request.urlopen(f"{address}/api/v1/timeline/tile?{urlencode(query)}").read()
        if attempt >= 20:
            took.append((time.perf_counter() - start) * 1e3)
            sizes.append(len(body))
    slowest, largest = (statistics.quantiles(values, n=20)[18] for values in (took, sizes))
    yield Row(
        f"timeline: {TILES} warm tiles over HTTP",
        f"p95 {slowest:.1f} ms, {largest / 1000:.0f} kB",
        "p95 at most 30 ms, 64 kB",
        slowest <= 30 and largest <= 64_000,
    )
