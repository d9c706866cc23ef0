"""Recordings of captured graphs, with their captures, beside eager ones of as many events.

    python -m benchmarks.captured FOLDER [--launches 10000]

A graph has 400 kernels in 40 modules; eager, each kernel comes with its launch call and two operators.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.rows import Row, Run, measured

LAUNCHES, KERNELS, A_MODULE, ROUNDS = 10_000, 400, 10, 5
NAMES = [f"void kernel_{i}<float, 4>(float*, float const*, int)" for i in range(A_MODULE)]
OPEN = """
import sys
from pathlib import Path
from visualprof.reader.cache import Cache, open_trace
trace = open_trace(sys.argv[1], cache=Cache(Path(sys.argv[2])))
if sys.argv[3] == "operator":
    from visualprof.views import view
    chosen = view(sys.argv[3])
    assert chosen.compute(trace, chosen.parse({})).unlinked.kernels == 0
if sys.argv[3] == "events":
    print(len(trace.events))
"""
ASKED = {
    "": "opened",
    "operator": "opened, with the table of operators",
    "events": "opened, with the content of all graphs as events",
}


def event(cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: object) -> str:
    return json.dumps(
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": round(ts, 3), "dur": dur, "args": args}
    )


def operators(at: float, number: int, correlation: int, width: float) -> Iterator[str]:
    """Of one kernel: the operator, the one in it, and the call."""
    name = NAMES[number % A_MODULE]
    shapes: dict[str, Any] = {"Input Dims": [[32, 1024], [1024, 1024]], "External id": correlation}
    yield event("cpu_op", f"aten::outer_{number % A_MODULE}", at, 0.9 * width, **shapes)
    yield event("cpu_op", f"aten::inner_{number % A_MODULE}", at + 0.1 * width, 0.7 * width, **shapes)
    yield event("cuda_runtime", "hipLaunchKernel", at + 0.2 * width, 0.5 * width, correlation=correlation, kernel=name)


def kernel(at: float, number: int, correlation: int) -> str:
    args = {"correlation": correlation, "device": 0, "stream": 7, "grid": [64, 1, 1], "block": [256, 1, 1]}
    return event("kernel", NAMES[number % A_MODULE], at, 1.9, tid=7, **args)


def eager(events: int) -> Iterator[str]:
    """Yield as many operators, calls and kernels without graphs."""
    for i in range(events // 4):
        yield from operators(2.0 * i, i, i + 1, 2.0)
        yield kernel(2.0 * i + 20, i, i + 1)


def replayed(launches: int) -> Iterator[str]:
    """One call for every so many kernels."""
    for launch in range(launches):
        at = 1000.0 * launch
        yield event("cuda_runtime", "hipGraphLaunch", at, 5, correlation=launch + 1)
        for i in range(KERNELS):
            yield kernel(at + 20 + 2 * i, i, launch + 1)


def capture() -> Iterator[str]:
    """Yield the events of the graph of one launch."""
    yield event("cuda_runtime", "hipStreamBeginCapture", 0, 1)
    for i in range(KERNELS):
        if i % A_MODULE == 0:
            yield event("python_function", f"nn.Module: Layer_{i // A_MODULE}", 10 + 10 * i, 10 * A_MODULE)
        yield from operators(10 + 10 * i, i, i + 1, 10)
    yield event("cuda_runtime", "hipStreamEndCapture", 20 + 10 * KERNELS, 1)


def write(path: Path, events: Iterable[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [\n')
        for number, one in enumerate(events):
            file.write(",\n" * (number > 0) + one)
        file.write("\n]}\n")
    return path


def captured(folder: Path, launches: int = LAUNCHES) -> Iterator[Row]:
    """CPU time for each event of the file, and the peak, of both, in turns; the files have as many events."""
    count = launches * (KERNELS + 1)
    files = {
        "eager": write(folder / "eager" / "run.json", eager(count)),
        "graphs": write(folder / "graphs" / "run.json", replayed(launches)),
    }
    write(folder / "graphs" / "capture_traces" / "bs_1_rank0.json", capture())
    for asked, topics in ASKED.items():
        runs: dict[str, list[Run]] = {kind: [] for kind in files}
        for _ in range(ROUNDS):
            for kind, path in files.items():
                with tempfile.TemporaryDirectory(dir=folder) as cache:
                    runs[kind].append(measured([sys.executable, "-c", OPEN, str(path), cache, asked]))
        cpu_us = {
            kind: statistics.median(run.cpu for run in kind_runs) / count * 1e6 for kind, kind_runs in runs.items()
        }
        ratios = [graphs.cpu / other.cpu for graphs, other in zip(runs["graphs"], runs["eager"], strict=True)]
        ratio = statistics.median(ratios)
        peak = {kind: statistics.median(run.peak for run in own) / 2**30 for kind, own in runs.items()}
        figure = (
            f"{cpu_us['graphs']:.2f} us of CPU per event, {count / 1e6:.1f} M events in the file, "
            f"eager {cpu_us['eager']:.2f} us: {ratio:.2f} x ({min(ratios):.2f}-{max(ratios):.2f}); "
            f"peak {peak['graphs']:.2f} GiB, eager {peak['eager']:.2f} GiB: {peak['graphs'] / peak['eager']:.2f} x"
        )
        whole = f"{launches:,} launches of graphs of {KERNELS} kernels, {topics}"
        if asked == "events":  # an eager recording has them in its file
            inside = int(runs["graphs"][0].out)
            yield Row(f"{whole}, {inside / 1e6:.1f} M", figure)
        else:
            fits = ratio <= 1 and peak["graphs"] <= peak["eager"]
            yield Row(whole, figure, "at most eager's CPU and peak", fits)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--launches", type=int, default=LAUNCHES)
    options = parser.parse_args()
    rows: list[Row] = []
    for row in captured(options.folder, options.launches):
        print(row.line(), flush=True)
        rows.append(row)
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
