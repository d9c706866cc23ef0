"""Run data over HTTP: the runs that have it, their tags, and the lines of a tag."""

from __future__ import annotations

import json
import shutil
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from sites import Site, kineto

from visualprof.capture import LogWriter

SAMPLES = Path(__file__).parents[1] / "fixtures" / "run_data"


@pytest.fixture
def logs(site: Site) -> Site:
    """A log directory with run data: alone, and next to a recording."""
    shutil.copytree(SAMPLES / "tensorboard" / "restart", site.folder / "restart")
    shutil.copytree(SAMPLES / "tensorboard" / "torch", site.folder / "torch")
    shutil.copytree(SAMPLES / "visualdl" / "odd", site.folder / "odd")
    site.write("recorded/trace.json", kineto())
    shutil.copytree(SAMPLES / "tensorboard" / "tf2" / "train", site.folder / "recorded" / "train")
    site.logdir.rescan()
    site.logdir.rescan()  # now the runs with recordings are known
    return site


def ask(site: Site, path: str, runs: list[str], **query: Any) -> Any:
    return site.client.get(f"/api/v1/data/{path}", query_string={"runs": json.dumps(runs), **query})


def test_runs_with_event_files_only_are_listed(logs: Site) -> None:
    runs = {run["id"]: run for run in logs.client.get("/api/v1/runs").get_json()["runs"]}
    assert {name for name, run in runs.items() if run["data"]} == {"restart", "torch", "odd", "recorded"}
    assert runs["torch"]["workers"] == []
    assert len(runs["recorded"]["workers"]) == 1


def test_tags_of_several_runs(logs: Site) -> None:
    body = ask(logs, "tags", ["restart", "recorded", "torch"]).get_json()
    columns = body["columns"]
    rows = list(zip(columns["run"], columns["line"], columns["tag"], columns["points"], strict=True))
    assert ("restart", ".", "x", 12) in rows
    assert ("recorded", "train", "loss", 5) in rows
    assert ("torch", "both_sin", "both", 20) in rows
    assert (body["complete"], body["warnings"]) == (True, [])
    assert columns["superseded"][rows.index(("restart", ".", "x", 12))] == 4
    assert columns["description"][rows.index(("recorded", "train", "loss", 5))] == "the loss"


def test_lines_of_a_tag(logs: Site) -> None:
    (line,) = ask(logs, "scalars", ["restart"], tag="x").get_json()["lines"]
    assert line["x"] == list(range(12))
    assert line["last"] == line["smoothed"] == [0, 1, 2, 3, 4, 5, 106, 107, 108, 109, 110, 111]
    assert (line["superseded_x"], line["superseded"]) == ([6, 7, 8, 9], [6, 7, 8, 9])
    (relative,) = ask(logs, "scalars", ["restart"], tag="x", x="relative").get_json()["lines"]
    assert relative["x"][:3] == [0, 0.25, 0.5]
    (wide,) = ask(logs, "scalars", ["restart"], tag="x", buckets=2, first=2, last=9, smooth=0.6).get_json()["lines"]
    assert sum(wide["points"]) == 10
    assert (min(wide["min"]), max(wide["max"])) == (1, 110)
    assert ask(logs, "scalars", ["restart"], tag="nothing").get_json()["lines"] == []


def test_values_that_are_not_finite_are_null_with_marks(logs: Site) -> None:
    (line,) = ask(logs, "scalars", ["odd"], tag="x").get_json()["lines"]
    assert line["last"] == [1, None, None, 3.5, 4, 5, 10]
    assert line["marks"] == {"x": [1, 2], "value": ["nan", "inf"]}


def test_csv_has_every_point(logs: Site) -> None:
    answer = ask(logs, "scalars", ["restart"], tag="x", format="csv")
    lines = answer.get_data(as_text=True).lstrip("\ufeff").splitlines()
    assert lines[:2] == [
        "run,line,tag,step,wall_time_s,value,superseded",
        '"restart",".","x",0,1800000000.000000,0.0,false',
    ]
    assert len(lines) == 17
    assert sum(line.endswith(",true") for line in lines) == 4


def test_the_view_of_a_run_is_its_scalars(logs: Site) -> None:
    body = logs.client.get("/api/v1/view/scalars?run=torch&tag=accuracy").get_json()
    assert (body["columns"]["run"], body["columns"]["value"]) == (["trial"], [0.75])


def stepped(first: int) -> str:
    """Two steps of 40 us; the second one is 10 us later."""
    events = json.loads(kineto())
    for index in range(2):
        name = f"ProfilerStep#{first + index}"
        step = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1}
        events["traceEvents"].append(step | {"ts": 90 + 50 * index, "dur": 40})
    return json.dumps(events | {"baseTimeNanoseconds": 1_800_000_000 * 10**9})


def recordings(site: Site, runs: list[str]) -> list[dict[str, Any]]:
    """Return the recordings of runs, once all are examined."""
    deadline = time.monotonic() + 30
    while not (body := ask(site, "recordings", runs).get_json())["complete"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return body["recordings"]


def test_recordings_are_ranges_and_scalars(logs: Site) -> None:
    for first in (5, 20):
        logs.write(f"stepped/rank0_{first}.json", stepped(first))
    shutil.copytree(SAMPLES / "tensorboard" / "tf2" / "train", logs.folder / "stepped" / "train")
    for _ in range(2):
        logs.logdir.rescan()
    steps = {(row["first_step"], row["last_step"]) for row in recordings(logs, ["stepped"])}
    columns = ask(logs, "tags", ["stepped"]).get_json()["columns"]
    assert (5, 6) in steps
    assert "recordings/step_time_ms" in columns["tag"]
    (line,) = ask(logs, "scalars", ["stepped"], tag="recordings/step_time_ms").get_json()["lines"]
    assert line["step"] == sorted(last for _, last in steps)
    overview = logs.client.get("/api/v1/view/overview?run=stepped").get_json()
    assert line["last"][0] == pytest.approx(overview["headline"]["step_median_ns"] / 1e6)


def test_new_points_appear_without_a_scan(logs: Site) -> None:
    path = next((logs.folder / "restart").glob("*800000100*"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    before = ask(logs, "tags", ["restart"]).get_json()
    path.write_bytes(whole)
    after = ask(logs, "tags", ["restart"]).get_json()
    assert (before["columns"]["points"], after["columns"]["points"]) == ([11], [12])
    assert before["version"] != after["version"]


@pytest.mark.parametrize(
    ("runs", "status", "error"),
    [
        ('["none"]', 404, "there is no run called 'none'"),
        ('["run"]', 409, "the run 'run' has no run data"),
        ("run", 400, "runs must be a JSON list of 1 to 100 ids"),
        ("[]", 400, "runs must be a JSON list of 1 to 100 ids"),
        (json.dumps(["r"] * 101), 400, "runs must be a JSON list of 1 to 100 ids"),
    ],
)
def test_errors_name_the_cause(logs: Site, runs: str, status: int, error: str) -> None:
    answer = logs.client.get("/api/v1/data/tags", query_string={"runs": runs})
    assert (answer.status_code, answer.get_json()["error"]) == (status, error)


def write_step_times(site: Site, run: str, durations_ms: list[int]) -> None:
    """Write the step times of a process that watches its steps."""
    head = {"visualprof_steps": 1, "worker": "rank0_a_1", "step": 10, "t_ns": 1_800_000_000 * 10**9}
    times = struct.pack(f"<{len(durations_ms)}q", *(duration * 10**6 for duration in durations_ms))
    site.write(f"{run}/rank0_a_1.steps.bin", json.dumps(head).encode() + b"\n" + times)
    site.logdir.rescan()


def test_step_times_are_scalars_without_logging_and_slow_steps_are_spikes(logs: Site) -> None:
    write_step_times(logs, "restart", [100] * 30 + [450] + [100] * 20)
    columns = ask(logs, "tags", ["restart"]).get_json()["columns"]
    row = columns["tag"].index("steps/step_time_ms")
    assert [columns[name][row] for name in ("line", "points", "first_step", "max")] == ["rank0_a_1", 51, 10, 450]
    lines = ask(logs, "scalars", ["restart"], tag="x", tags='["steps/step_time_ms"]', spikes="true").get_json()["lines"]
    assert [line["tag"] for line in lines] == ["x", "steps/step_time_ms"]
    spikes = lines[1]["spikes"]
    assert (spikes["step"], spikes["value"], spikes["median"]) == ([40], [450], [100])
    assert spikes["wall_s"] == [1_800_000_000 + 3.45]
    assert lines[0]["spikes"]["x"] == []


def test_a_program_may_log_its_own_step_times_under_the_same_tag(site: Site) -> None:
    with LogWriter(site.folder / "own") as writer:
        for step in range(3):
            writer.add_scalar("steps/step_time_ms", 20.0 + step, step)
    write_step_times(site, "own", [100, 101])
    lines = ask(site, "scalars", ["own"], tag="steps/step_time_ms").get_json()["lines"]
    assert [(line["line"], line["last"]) for line in lines] == [(".", [20, 21, 22]), ("rank0_a_1", [100, 101])]


def test_further_tags_must_be_a_list(logs: Site) -> None:
    answer = ask(logs, "scalars", ["restart"], tag="x", tags="y")
    assert (answer.status_code, answer.get_json()["error"]) == (400, "tags must be a JSON list of at most 50 tags")


def test_layouts_of_charts_are_listed_once(site: Site) -> None:
    layout: dict[str, dict[str, Any]] = {
        "losses": {"all": ["Multiline", ["loss/.*", "x" * 201]]},
        "confidence": {"accuracy": ["Margin", ["acc", "low", "high"]]},
    }
    for run in ("a", "b"):
        with LogWriter(site.folder / run) as writer:
            writer.add_custom_scalars(layout)
    site.logdir.rescan()
    body = ask(site, "layouts", ["a", "b"]).get_json()
    assert body["charts"] == [
        {"category": "losses", "title": "all", "patterns": ["loss/.*"], "margins": [], "closed": False},
        {
            "category": "confidence",
            "title": "accuracy",
            "patterns": [],
            "margins": [{"value": "acc", "lower": "low", "upper": "high"}],
            "closed": False,
        },
    ]
