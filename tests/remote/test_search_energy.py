"""Energy as the objective and constraint of a search: processor counters that increase at a known power."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.remote.child_runs import TINY_INPUTS, Job, code, tiny_onnx
from visualprof.remote.child import energy
from visualprof.remote.protocol import Search, Sweep

pytestmark = pytest.mark.slow
WATTS = 40.0
# A driver whose GPU uses 250 J between two questions.
NVML = """
static unsigned long long used_mj = 1000000;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **handle) { return number > 1 ? 2 : 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *mj) { *mj = used_mj += 250000; return 0; }
"""


@contextmanager
def counters(folder: Path) -> Iterator[None]:
    """A package of processors in `folder` that uses WATTS all the time."""
    zone, event, began = folder / "intel-rapl:0", threading.Event(), time.monotonic()
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text(f"{1 << 48}\n")

    def count() -> None:
        while not event.wait(0.002):
            (zone / "part").write_text(f"{round((time.monotonic() - began) * WATTS * 1e6)}\n")
            (zone / "part").rename(zone / "energy_uj")

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        event.set()
        thread.join()


def archive(folder: Path, powercap: Path) -> Path:
    """The child's code, which looks for counters in another folder."""
    path, name = folder / "code.pyz", "visualprof/remote/child/rapl.py"
    with zipfile.ZipFile(code()) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.namelist():
            content = old.read(entry)
            if entry == name:
                assert b"/sys/class/powercap" in content
                content = content.replace(b"/sys/class/powercap", str(powercap).encode())
            new.writestr(entry, content)
    return path


@pytest.mark.long
def test_the_least_energy_is_searched_under_a_bound_of_it(tmp_path: Path) -> None:
    """At a constant power the energy of a sample is its time: that of four at once is far less than that of one."""
    search = Search("energy", {}, ["energy<100J", "error<1e-3"], trial_s=0.05)
    job = Job(
        tmp_path,
        tiny_onnx(tmp_path / "model.onnx"),
        TINY_INPUTS,
        sweep=Sweep("batch", [1, 4]),
        spec={"threads": 1},
        search=search,
        archive=archive(tmp_path, tmp_path / "powercap"),
        patience_s=400.0,
    )
    runtime = {"backend": "onnxruntime", "version": "", "python": job.python, "python_version": "", "devices": ["cpu"]}
    job.more = {"runtimes": [runtime], "converters": {}, "memory_bytes": 8 << 30}
    with counters(tmp_path / "powercap"):
        ran = job.run("search")
    assert ran.status == 0, ran.stderr
    document = json.loads((ran.out / "search.json").read_text())
    assert {row["state"] for row in document["trials"]} == {"feasible"}
    for row in document["trials"]:
        figures = row["figures"]
        power = figures["energy_j_per_sample"] * figures["samples_per_s"]
        assert 0.9 * WATTS < power < 2 * WATTS, "the counter goes on while a busy machine lets a turn wait"
    ratios = {row["setting"]["batch"]: row["ratio"]["value"] for row in document["trials"]}
    assert ratios["4"] < 0.6 * ratios["1"]


def test_a_gpu_counts_its_own_energy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (compiler := shutil.which("cc")):
        pytest.skip("there is no compiler for C")
    (tmp_path / "nvml.c").write_text(NVML)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "nvml.c"], check=True)
    monkeypatch.setattr(energy, "NVML", str(library))
    meter = energy.energy_meter("cuda:1")
    assert meter.used_j() is None, "nothing came before"
    assert (meter.used_j(), meter.used_j()) == (250.0, 250.0)
    absent = energy.energy_meter("cuda:2")
    assert (absent.used_j(), absent.used_j()) == (None, None)
