"""What works on macOS and Windows: the dashboard does, an agent says that it does not. Both are pretended here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

#: Runs first in every process, those that read files included: what Linux alone has is not there.
LACKING = """
import os, signal, sys
sys.modules["fcntl"] = sys.modules["resource"] = None
for module, names in (os, "sched_getaffinity killpg nice statvfs getloadavg fork"), (signal, "SIGHUP SIGQUIT"):
    for name in names.split():
        delattr(module, name)
"""
#: What libraries import by the system's name is imported under the right one.
AS = """
import importlib, sys, sysconfig
libraries = "multiprocessing.popen_spawn_posix multiprocessing.connection urllib.request asyncio"
for name in f"{libraries} platformdirs watchdog.observers flask sqlalchemy alembic.command".split():
    importlib.import_module(name)
sysconfig.get_config_vars()
sys.platform = sys.argv.pop(1)
"""
DASHBOARD = """
import json, time, urllib.request
from visualprof.server.serve import Server
from visualprof.server.settings import Settings
ask = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with Server([sys.argv[1]], 0, Settings()) as server:
    server.start()
    get = lambda path: json.load(ask.open(server.url + "api/v1/" + path, timeout=30))
    ready, end = [], time.monotonic() + 30
    while not ready and time.monotonic() < end:
        time.sleep(0.05)
        spans = [(r, w, s) for r in get("runs")["runs"] for w in r["workers"] for s in w["spans"]]
        ready = [found for found in spans if found[2]["state"] == "ready"]
    (run, worker, span), = ready
    ids = f"run={run['id']}&worker={worker['id']}&span={span['id']}"
    print("calls" in str(get(f"view/operator?{ids}")), get("jobs")["jobs"], get("models")["models"])
"""
SYSTEMS = pytest.mark.parametrize("system", ["darwin", "win32"])


def python(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in an interpreter that lacks what Linux alone has."""
    (folder / "sitecustomize.py").write_text(LACKING)
    home = {"HOME": str(folder), "LOCALAPPDATA": str(folder)}
    environment = os.environ | home | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", AS + program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


@SYSTEMS
@pytest.mark.slow
def test_the_dashboard_works(system: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    shutil.copy(ROOT / "visualprof" / "samples" / "pytorch-ddp-cpu" / "rank0.pt.trace.json.gz", runs)
    done = python(tmp_path, DASHBOARD, system, str(runs))
    assert done.stdout == "True [] []\n", done.stderr
    assert done.stderr == ""


@SYSTEMS
@pytest.mark.parametrize(
    "words",
    [["agent", "--server", "http://localhost:1"], ["agent", "probe"], ["--with-agent", "--no-token", "--port=0", "."]],
)
@pytest.mark.slow
def test_an_agent_reports_that_it_needs_linux(system: str, words: list[str], tmp_path: Path) -> None:
    program = f"from visualprof.cli import main\nsys.exit(main({words}))"
    done = python(tmp_path, program, system)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"visualprof: An agent needs Linux, this is {system}"
    assert "Traceback" not in done.stderr
