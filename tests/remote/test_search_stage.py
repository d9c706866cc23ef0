"""The stage `search` as an agent starts it, on a tiny model, and with a runtime that does what runtimes should not."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.remote.child_runs import TINY_INPUTS, Job, Ran, code, tiny_onnx
from visualprof.remote.protocol import Search, Sweep

pytestmark = pytest.mark.slow
stage = pytest.mark.long
PATIENCE_S = 400.0
PATCH = """

_real = load


def load(path, spec, feeds):
    if spec.threads == 3:
        import os
        os.kill(os.getpid(), 11)
    return _real(path, spec, feeds)


import dataclasses
BACKEND = dataclasses.replace(BACKEND, load=load)
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The child's archive with an ONNX Runtime that crashes with three threads."""
    path, name = tmp_path_factory.mktemp("code") / "code.pyz", "visualprof/remote/backends/onnxruntime.py"
    with zipfile.ZipFile(code()) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.namelist():
            new.writestr(entry, old.read(entry) + (PATCH.encode() if entry == name else b""))
    return path


def job_of(folder: Path, search: Search, archive: Path | None = None) -> Job:
    folder.mkdir(exist_ok=True)
    runtimes = [
        {"backend": "onnxruntime", "version": "", "python": sys.executable, "python_version": "", "devices": ["cpu"]}
    ]
    converters = {"ort_int8_dynamic": [sys.executable]}
    return Job(
        folder,
        tiny_onnx(folder / "model.onnx"),
        TINY_INPUTS,
        sweep=Sweep("batch", [1, 4]),
        spec={"threads": 1},
        search=search,
        more={"runtimes": runtimes, "converters": converters, "memory_bytes": 8 << 30},
        archive=archive,
        patience_s=PATIENCE_S,
    )


def result(ran: Ran) -> dict[str, Any]:
    assert ran.status == 0, ran.stderr
    return json.loads((ran.out / "search.json").read_text())


@stage
def test_few_settings_are_all_tried_and_the_best_is_remeasured(tmp_path: Path, archive: Path) -> None:
    search = Search("throughput", {"threads": ["1", "3"]}, ["memory<2GiB"], trial_s=0.05)
    ran = job_of(tmp_path, search, archive).run("search")
    search_result = result(ran)
    assert (search_result["method"], search_result["settings"], search_result["total"], search_result["complete"]) == (
        "exhaustive",
        4,
        4,
        True,
    )
    rows = {(row["setting"]["batch"], row["setting"]["threads"]): row for row in search_result["trials"]}
    assert {key: row["state"] for key, row in rows.items() if key[1] == "3"} == {
        ("1", "3"): "failed",
        ("4", "3"): "failed",
    }
    assert rows["1", "3"]["why"] == "crashed: its process ended with SIGSEGV"
    best = rows["4", "1"]
    assert best["state"] == "feasible"
    assert best["ratio"]["low"] <= best["ratio"]["value"] <= best["ratio"]["high"]
    assert best["ratio"]["value"] < 0.6 * rows["1", "1"]["ratio"]["value"], "four samples cost hardly more than one"
    assert best["figures"]["error"] == 0.0
    assert search_result["best"]["at"] in {one["at"] for one in search_result["again"]}
    assert search_result["best"]["ratio"]["rounds"] >= 15
    assert search_result["best"]["margin"] >= search_result["default"]["margin"] >= 0.05
    assert search_result["best"]["verdict"] == (
        "better" if search_result["best"]["ratio"]["high"] < 1 - search_result["best"]["margin"] else "equal"
    )
    assert [event["done"] for event in ran.told("progress")] == [1, 2, 3, 4]
    assert "trial 4 of 4" in ran.stdout


@stage
def test_an_infeasible_constraint_gives_no_best_setting(tmp_path: Path) -> None:
    search_result = result(job_of(tmp_path, Search("latency", {}, ["memory<1MiB"], trial_s=0.05)).run("search"))
    assert {row["state"] for row in search_result["trials"]} == {"infeasible"}
    assert {row["why"] for row in search_result["trials"]} == {"memory<1MiB: not satisfied"}
    assert (search_result["best"], search_result["again"], search_result["default"]["missed"]) == (
        None,
        [],
        ["memory<1MiB: not satisfied"],
    )


@stage
def test_an_error_beyond_the_bound_is_found_on_ones_own_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    np.save(tmp_path / "x.npy", rng.standard_normal((4, 4)).astype("float32"))
    np.save(tmp_path / "scale.npy", np.float32(0.5))
    search = Search("size", {"conversion": ["none", "ort_int8_dynamic"]}, ["error<1e-6"], trial_s=0.05)
    job = job_of(tmp_path, search)
    job.more["data"] = {name: str(tmp_path / f"{name}.npy") for name in ("x", "scale")}
    search_result = result(job.run("search"))
    states = {(row["setting"]["conversion"], row["setting"]["batch"]): row for row in search_result["trials"]}
    assert {row["state"] for (conversion, _), row in states.items() if conversion == "none"} == {"feasible"}
    assert {row["why"] for (conversion, _), row in states.items() if conversion != "none"} == {
        "error<1e-6: not satisfied"
    }
    assert states["ort_int8_dynamic", "1"]["figures"]["error"] > 1e-6
    assert search_result["data_rows"] == 2
    assert search_result["best"]["verdict"] == "equal"  # the same file


@stage
def test_a_killed_search_resumes_with_its_trials(tmp_path: Path, archive: Path) -> None:
    """Whatever was measured stays as it is; the trial in the middle is tried once more, and then never again."""
    search = Search("throughput", {"optimization": ["all", "basic", "disable"]}, trial_s=0.05)
    job, out = job_of(tmp_path, search, archive), tmp_path / "out" / "search.json"
    job.patience_s = 0.01
    with pytest.raises(subprocess.TimeoutExpired):  # lays down task.json
        job.run("search")
    command = [sys.executable, "-I", str(archive), str(tmp_path), "search"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        end = time.monotonic() + 60
        while time.monotonic() < end and not (out.exists() and len(json.loads(out.read_text())["trials"]) > 2):
            time.sleep(0.02)
        running.kill()
    before = json.loads(out.read_text())["trials"]
    assert before[-1]["state"] == "running"
    before[0]["took_ns"] = 1  # to be known again
    begun_twice = {**before[-1], "starts": 2}
    document = json.loads(out.read_text()) | {"trials": [*before[:-1], begun_twice]}
    out.write_text(json.dumps(document))
    job.patience_s = PATIENCE_S
    search_result = result(job.run("search"))
    assert search_result["complete"]
    assert len(search_result["trials"]) == len({row["at"] for row in search_result["trials"]}) == 6
    assert search_result["trials"][: len(before) - 1] == before[:-1]
    given_up = search_result["trials"][len(before) - 1]
    assert (given_up["state"], given_up["why"]) == ("failed", "the agent or the machine ended twice while it ran")
    again = result(job.run("search"))
    assert again["trials"] == search_result["trials"], "nothing is left but to measure the best again"


@stage
def test_trials_of_another_search_are_not_taken_over(tmp_path: Path) -> None:
    job = job_of(tmp_path, Search("latency", {}, trial_s=0.05))
    (tmp_path / "out").mkdir()
    old = {"schema": "visualprof.search/1", "asked": {"objective": "latency"}, "sizes": [1, 4], "trials": [{"at": 9}]}
    (tmp_path / "out" / "search.json").write_text(json.dumps(old))
    assert sorted(row["at"] for row in result(job.run("search"))["trials"]) == [0, 1]


@stage
def test_many_settings_are_sampled_without_repetition(tmp_path: Path) -> None:
    over = {"threads": ["1", "2"], "optimization": ["all", "basic", "disable"]}
    job = job_of(tmp_path, Search("throughput", over, ["error<1e-3"], trials=8, trial_s=0.05))
    search_result = result(job.run("search"))
    assert search_result["method"] == "gaussian_process"
    again = {one["at"] for one in search_result["again"]}
    assert again <= {row["at"] for row in sorted(search_result["trials"], key=lambda row: row["ratio"]["value"])[:3]}
    assert search_result["best"] == min(search_result["again"], key=lambda one: one["ratio"]["value"])
    assert len({row["at"] for row in search_result["trials"]}) == 8
    assert search_result["trials"][0]["setting"].keys() == {"batch", "threads", "optimization"}


@stage
def test_a_machine_without_energy_counters_is_reported(tmp_path: Path) -> None:
    if any(Path("/sys/class/powercap").glob("intel-rapl:*/energy_uj")):
        pytest.skip("this one does")
    failed = job_of(tmp_path, Search("energy", {}, trial_s=0.05)).run("search")
    assert failed.failed["error"] == "this machine does not report its energy use"
