"""Live runs as the API tells of them, and steps that somebody asks to be recorded."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import pytest
from sites import MakeSite, Site, kineto

from tests.live_files import acknowledge, heartbeat, request, series
from visualprof.capture import live as files
from visualprof.server.api import live as api

MS = 1_000_000


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept from one question to the next."""
    monkeypatch.setattr(api, "_MAX_AGE_S", 0.0)
    monkeypatch.setattr(api, "_ENDED_MAX_AGE_S", 0.0)
    monkeypatch.setattr(api, "_IDLE_FACTOR", 0)


def live(site: Site) -> list[dict[str, Any]]:
    site.logdir.rescan()
    return site.client.get("/api/v1/live").get_json()["runs"]


def ask(site: Site, **wish: Any) -> Any:
    return site.client.post("/api/v1/live/record", json={"run": "job", **wish})


def test_ranks_report_their_state(site: Site) -> None:
    heartbeat(site.folder / "job", 0)
    heartbeat(site.folder / "job", 1, ago_s=30)
    (run,) = live(site)
    assert (run["run"], run["recordable"], run["recording"]) == ("job", True, None)
    first, second = run["processes"]
    assert {name: first[name] for name in ("rank", "host", "step", "step_ns", "state", "framework")} == {
        "rank": 0,
        "host": "node7",
        "step": 1234,
        "step_ns": 48 * MS,
        "state": "listening",
        "framework": "torch",
    }
    assert (second["state"], 29e9 < second["since_ns"] < 60e9) == ("silent", True)
    listed = {run["id"]: run for run in site.client.get("/api/v1/runs").get_json()["runs"]}
    assert (listed["job"]["live"], listed["job"]["workers"], listed["run"]["live"]) == (True, [], False)


def test_a_recording_progresses_rank_by_rank(site: Site) -> None:
    run = site.folder / "job"
    heartbeat(run, 0)
    heartbeat(run, 1)
    live(site)
    answer = ask(site, steps=3, stacks=True)
    assert answer.status_code == 201
    asked = request(run)
    assert (asked.count, asked.by) == (3, "page")
    assert asked.options == {"memory": True, "shapes": True, "stacks": True}
    assert [worker["state"] for worker in answer.get_json()["workers"]] == ["asked", "asked"]
    assert answer.get_json()["id"] == asked.id
    again = ask(site)
    assert (again.status_code, again.get_json()["hint"]) == (409, "wait for them")
    acknowledge(run, asked.id, 0, "recording")
    heartbeat(run, 1, ago_s=30)
    assert [row["state"] for row in live(site)[0]["recording"]["workers"]] == ["recording", "silent"]
    heartbeat(run, 1, state="ended")
    acknowledge(run, asked.id, 0, "done", file="rank0.step1300.pt.trace.json.gz")
    recording = live(site)[0]["recording"]
    assert recording["over"]
    assert [(row["rank"], row["state"], row["file"]) for row in recording["workers"]] == [
        (0, "done", "job/rank0.step1300.pt.trace.json.gz"),
        (1, "ended", None),
    ]


def test_without_news_the_answer_is_empty(site: Site) -> None:
    heartbeat(site.folder / "job", 0, state="ended")
    live(site)
    first = site.client.get("/api/v1/live")
    second = site.client.get("/api/v1/live", headers={"If-None-Match": first.headers["ETag"]})
    assert second.status_code in (200, 304)
    for path in (site.folder / "job" / ".live").iterdir():
        path.unlink()
    assert live(site) == []
    empty = site.client.get("/api/v1/live")
    same = site.client.get("/api/v1/live", headers={"If-None-Match": empty.headers["ETag"]})
    assert same.status_code == 304


def test_a_run_that_ended_long_ago_is_not_live(site: Site) -> None:
    heartbeat(site.folder / "job", 0, ago_s=2 * 3600, state="ended")
    assert live(site) == []
    assert ask(site).get_json()["error"] == "the processes of this run no longer listen for requests"


def test_an_unused_folder_is_not_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat(site.folder / "job", 0)
    then = time.time() - 3700
    os.utime(site.folder / "job" / ".live", (then, then))
    monkeypatch.setattr(files, "beats", lambda run: pytest.fail(f"{run} was read"))
    assert live(site) == []


def test_a_rank_that_cannot_record_gives_the_reason(site: Site, make_site: MakeSite) -> None:
    del make_site
    assert ask(site, run="none").status_code == 404
    assert ask(site, run="run").status_code == 404
    heartbeat(site.folder / "job", 0, problem="no framework")
    live(site)
    refused = ask(site)
    assert (refused.status_code, refused.get_json()["error"]) == (409, "nothing can be recorded: no framework")
    for wrong in ({"steps": 0}, {"steps": 101}, {"path": "/etc"}, {"memory": 1}):
        assert ask(site, **wrong).status_code == 400
    foreign = site.client.post("/api/v1/live/record", json={"run": "job"}, headers={"Sec-Fetch-Site": "cross-site"})
    assert foreign.status_code == 403


def test_a_read_only_server_requests_no_recordings(make_site: MakeSite) -> None:
    site = make_site(read_only=True)
    heartbeat(site.folder / "job", 0)
    assert live(site)[0]["recordable"] is False
    assert ask(site).status_code == 403
    assert not (site.folder / "job" / ".live" / "request.json").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right")
def test_a_folder_that_became_a_link_is_neither_read_nor_written(site: Site) -> None:
    run, elsewhere = site.folder / "job", site.folder.parent / "elsewhere"
    heartbeat(run, 0)
    heartbeat(elsewhere, 0)
    assert len(live(site)) == 1
    (run / ".live").rename(run / ".was")
    (run / ".live").symlink_to(elsewhere / ".live")
    before = sorted(os.listdir(elsewhere / ".live"))
    assert site.client.get("/api/v1/live").get_json()["runs"] == []  # before the next look at the folders
    assert ask(site).status_code == 404
    assert sorted(os.listdir(elsewhere / ".live")) == before


def test_hostile_files_say_nothing(site: Site) -> None:
    run = site.folder / "job"
    beat = heartbeat(run, 0, host="<img src=x>")
    folder = run / ".live"
    whole = json.loads((folder / f"{beat.worker}.json").read_text())
    for name, content in {
        "a.json": "{",
        "b.json": "[]",
        "c.json": json.dumps(whole),
        "d.json": "9" * 70_000,
        "e.json": json.dumps({**whole, "worker": "e", "state": "x" * 900}),
        "request.json": '{"id": 1}',
        "f.json": json.dumps({**whole, "worker": "f", "step": 2**70}),
        "g.json": json.dumps({**whole, "worker": "\ud800"}),
        "ack.x.json": "[" * 60_000,
    }.items():
        (folder / name).write_text(content)
    if sys.platform != "win32":
        os.mkfifo(folder / "pipe.json")
        (folder / "link.json").symlink_to("/dev/zero")
    (row,) = live(site)
    assert [(process["worker"], process["host"], process["framework"]) for process in row["processes"]] == [
        (beat.worker, "<img src=x>", "torch")
    ]
    assert row["recording"] is None
    assert ask(site).status_code == 201
    asked = request(run)
    for forged in ({"file": "../../secret.json"}, {"why": "\udcff"}, {"state": "x"}):
        acknowledge(run, asked.id, 0, **{"state": "done", **forged})
        turns = {worker["worker"]: worker["state"] for worker in live(site)[0]["recording"]["workers"]}
        assert turns.get(beat.worker) in ("asked", None)
    (site.folder / "ack.secret.json").write_text((folder / f"ack.{beat.worker}.json").read_text())
    document = json.loads((folder / "request.json").read_text())
    (folder / "request.json").write_text(json.dumps({**document, "workers": ["/../../../secret"]}))
    assert live(site)[0]["recording"] is None


def test_step_times_are_answered_with_their_recordings(site: Site) -> None:
    series(site.folder / "job", 0, [10 * MS] * 3 + [-1, 30 * MS, 30 * MS, -3, 10 * MS], first=7)
    series(site.folder / "job", 1, [20 * MS])
    site.logdir.rescan()
    answer = site.client.get("/api/v1/live/steps?run=job").get_json()
    assert (answer["worker"], answer["first_step"], answer["steps"]) == ("rank0_node7_40", 7, 6)
    assert answer["median_ns"] == 10 * MS  # of 10 10 10 30 30 10
    assert answer["recorded"] == [{"step": 10, "steps": 2, "by": "asked"}]
    assert answer["charts"]["steps"]["series"][0]["data"][4] == [60 * MS, 30 * MS]
    assert answer["workers"] == ["rank0_node7_40", "rank1_node7_41"]
    other = site.client.get("/api/v1/live/steps?run=job&worker=rank1_node7_41").get_json()
    assert (other["steps"], other["median_ns"]) == (1, 20 * MS)
    for query in ("run=run", "run=none", "run=job&worker=../x"):
        assert site.client.get(f"/api/v1/live/steps?{query}").status_code == 404
    site.write("job/rank0_node7_40.steps.bin", "nonsense")
    assert site.client.get("/api/v1/live/steps?run=job").status_code == 422
    # A page that shows a view of a run without a recording says so.
    site.write("job2/w.steps.bin", "x")
    assert site.client.get("/api/v1/view/overview?run=job2").status_code == 404


def test_a_recording_next_to_a_run_joins_it(site: Site) -> None:
    heartbeat(site.folder / "job", 0)
    site.write("job/rank0_node7_40.step12.pt.trace.json", kineto())
    (run,) = [run for run in site.client.get("/api/v1/runs").get_json()["runs"] if run["id"] == "job"]
    assert (run["live"], [worker["id"] for worker in run["workers"]]) == (True, ["rank0_node7_40"])


def test_many_pages_read_the_files_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_MAX_AGE_S", 60.0)
    heartbeat(site.folder / "job", 0)
    reads: list[object] = []
    original = files.beats
    monkeypatch.setattr(files, "beats", lambda run: (reads.append(run), original(run))[1])
    assert [len(live(site)) for _ in range(5)] == [1] * 5
    assert len(reads) == 1
    heartbeat(site.folder / "job", 0, t_ns=time.time_ns())
    assert ask(site).status_code == 201
    assert live(site)[0]["recording"] is not None  # what one did oneself is seen at once
