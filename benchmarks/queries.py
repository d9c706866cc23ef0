"""Questions in SQL from the shell to the answer, next to the same questions in pandas, SQLite and other tools.

    python -m benchmarks.queries FILE... [--rounds 3] [--peers]

Each figure is of a process from its start to its last byte of output, after the file was opened once: the lowest of
some rounds. The limits are those of CPU time, which other load on the machine does not change much; on an idle machine
the wall time is at most that. `--peers` needs HolisticTraceAnalysis and perfetto, and names the missing ones.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import kineto_file
from benchmarks.opening import JSON_LOADS
from benchmarks.rows import Row, Run, measured

ROUNDS = 3
_GROUP_BY = "SELECT name, count(*) AS n, sum(dur) AS total_ns FROM kernel GROUP BY name ORDER BY total_ns DESC, name"
_JOIN = """
SELECT o.name, l.name AS call, count(*) AS n, sum(k.dur) AS total_ns
FROM kernel k JOIN slice l ON l.id = k.launch_id JOIN op o ON o.id = k.op_id
GROUP BY ALL ORDER BY total_ns DESC, 1
"""
_WINDOW = """
SELECT name, sum(gap) AS gap_ns
FROM (SELECT name, ts - lag(ts + dur) OVER (PARTITION BY track_id ORDER BY ts) AS gap FROM kernel)
GROUP BY name ORDER BY gap_ns DESC
"""
# Question -> statement, and the limit in seconds for a million events.
QUESTIONS: dict[str, tuple[str, float]] = {
    "time by kernel": (_GROUP_BY, 0.5),
    "kernel, launch and operator": (_JOIN, 1.0),
    "gap before each kernel": (_WINDOW, 1.0),
}
MANY_RANKS_S = 20.0
MANY_RANKS, EVENTS_PER_RANK = 64, 50_000  # 64 x 1,000,000 events need 22 GB of disk
_EVENTS = "import json, sys\nevents = json.loads(open(sys.argv[1], 'rb').read())['traceEvents']\n"
_PANDAS = """
import pandas as pd
frame = pd.DataFrame([(e["name"], round(e["dur"] * 1000)) for e in events if e.get("cat") == "kernel"])
table = frame.groupby(0)[1].agg(["size", "sum"]).sort_values("sum", ascending=False)
print(json.dumps([[name, *map(int, row)] for name, row in zip(table.index, table.to_numpy())]))
"""
_SQLITE = """
import sqlite3
base = sqlite3.connect(":memory:")
base.execute("CREATE TABLE kernel (name TEXT, dur INTEGER)")
rows = ((e["name"], round(e["dur"] * 1000)) for e in events if e.get("cat") == "kernel")
base.executemany("INSERT INTO kernel VALUES (?, ?)", rows)
print(json.dumps(base.execute("SELECT name, count(*), sum(dur) FROM kernel GROUP BY name ORDER BY 3 DESC").fetchall()))
"""
_HTA = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.common.trace import Trace
trace = Trace(trace_files={0: sys.argv[1]})
trace.parse_traces(use_multiprocessing=False)
names = trace.symbol_table.get_sym_table()
frame = trace.get_trace(0)
kernels = frame[frame["cat"].map(lambda i: names[i] == "kernel")]
table = kernels.groupby("name")["dur"].agg(["size", "sum"])
print(json.dumps([[names[i], *map(int, row)] for i, row in zip(table.index, table.to_numpy())]))
"""
_PERFETTO = """
import json, sys
from perfetto.trace_processor import TraceProcessor
rows = TraceProcessor(trace=sys.argv[1]).query(
    "SELECT name, count(*) AS n, sum(dur) AS total FROM slice WHERE category = 'kernel' GROUP BY name")
print(json.dumps([[row.name, row.n, row.total] for row in rows]))
"""
_LIVE = """
import sys, time, visualprof
opened = visualprof.open(sys.argv[1])
times = []
for _ in range(6):
    start = time.process_time()
    opened.sql(sys.argv[2]).rows
    times.append(time.process_time() - start)
print(min(times[1:]))
"""


def least(command: list[str], rounds: int) -> Run:
    """Return the run with the least CPU time."""
    return min((measured(command) for _ in range(rounds)), key=lambda run: run.cpu)


def answered(paths: list[Path], sql: str, rounds: int) -> Run:
    """Return the fastest of some runs of `visualprof query`."""
    command = [
        sys.executable,
        "-m",
        "visualprof",
        "query",
        *map(str, paths),
        sql,
        "--format",
        "json",
        "--timeout",
        "600",
    ]
    return least(command, rounds)


def _figure(run: Run, baseline: Run | None = None) -> str:
    ratio = f", {run.cpu / baseline.cpu:.2f} x json.loads" if baseline else ""
    return f"CPU {run.cpu:.2f} s{ratio}; wall {run.wall:.2f} s, {run.peak / 1e6:.0f} MB"


def questions(path: Path, rounds: int = ROUNDS, limit_s: float = 0.0) -> Iterator[Row]:
    """Yield the times of the questions about one file, each with its own limit or the given one."""
    size = path.stat().st_size
    baseline = least([sys.executable, "-c", JSON_LOADS, str(path)], 1)
    yield Row(f"baseline: json.loads, {size / 1e6:,.0f} MB", _figure(baseline))
    answered([path], "SELECT 1", 1)  # fills the cache
    for question, (sql, default_s) in QUESTIONS.items():
        run, most_s = answered([path], sql, rounds), limit_s or default_s
        is_met = run.cpu <= most_s and run.peak <= size
        bar = f"at most {most_s:g} s and the size of the file"
        yield Row(f"`visualprof query`: {question}", _figure(run, baseline), bar, is_met)
        live = measured([sys.executable, "-c", _LIVE, str(path), sql])
        yield Row(f"the same in an open notebook: {question}", f"CPU {float(live.out) * 1000:.0f} ms")


def peers(path: Path, rounds: int = 1) -> Iterator[Row]:
    """Yield how other tools answer the first question, and whether the answers are equal."""
    columns = json.loads(answered([path], _GROUP_BY, 1).out)["columns"]
    expected = {name: (n, total) for name, n, total in zip(*columns.values(), strict=True)}
    programs = {
        "pandas over json.loads": ("pandas", _EVENTS + _PANDAS, 1),
        "SQLite over json.loads": ("sqlite3", _EVENTS + _SQLITE, 1),
        "HTA": ("hta", _HTA, 1000),
        "Perfetto": ("perfetto", _PERFETTO, 1),
    }
    for tool, (package, program, unit_ns) in programs.items():
        if importlib.util.find_spec(package) is None:
            yield Row(f"{tool}: time by kernel", f"not measured: {package} is not installed")
            continue
        try:
            run = least([sys.executable, "-c", program, str(path)], rounds)
        except RuntimeError as error:
            lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("MEASURED")]
            yield Row(f"{tool}: time by kernel", f"failed: {lines[-1][:200]}")
            continue
        values = {name: (n, total) for name, n, total in json.loads(run.out.strip().splitlines()[-1])}
        is_equal = values.keys() == expected.keys() and all(
            values[name][0] == n and abs(values[name][1] * unit_ns - total) <= n * unit_ns
            for name, (n, total) in expected.items()
        )
        yield Row(f"{tool}: time by kernel", f"{_figure(run)}; {'equal' if is_equal else 'other'} values")


def many_ranks(folder: Path, ranks: int = MANY_RANKS, events: int = EVENTS_PER_RANK) -> Iterator[Row]:
    """Yield the time of a group-by over many ranks as one."""
    run_folder = folder / "ranks-to-query"
    run_folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        kineto_file.write(run_folder / f"rank{rank}.pt.trace.json", events, rank, ranks, 10)
    answered([run_folder], "SELECT 1", 1)
    run = answered([run_folder], "SELECT rank, name, sum(dur) FROM kernel GROUP BY rank, name", 1)
    bar = f"at most {MANY_RANKS_S:.0f} s"
    yield Row(
        f"{ranks} ranks of {events:,} events: time by rank and kernel", _figure(run), bar, run.cpu <= MANY_RANKS_S
    )


def queries(folder: Path, path: Path) -> Iterator[Row]:
    """Yield all rows: questions about a file of a million events, and about many ranks."""
    yield from questions(path)
    yield from peers(path)
    yield from many_ranks(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--limit", type=float, default=0.0, help="seconds for each question")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--ranks", type=int, default=0)
    parser.add_argument("--events", type=int, default=EVENTS_PER_RANK)
    options = parser.parse_args()
    for path in options.files:
        for row in (*questions(path, options.rounds, options.limit), *(peers(path) if options.peers else ())):
            print(row.line(), flush=True)
    if options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            for row in many_ranks(Path(folder), options.ranks, options.events):
                print(row.line(), flush=True)


if __name__ == "__main__":
    main()
