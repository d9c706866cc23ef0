"""Models on a server: read elsewhere, once, within limits; which of them a run is of."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
import urllib.error
import urllib.request
import weakref
from pathlib import Path
from typing import Any

import pytest
from sites import MakeSite, Site, kineto

from tests import models
from visualprof.reader.child import Failure
from visualprof.reader.graph import ModelGraph
from visualprof.reader.logdir.models import cache_graph
from visualprof.server.serve import Server

pytest.importorskip("onnx")
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(url: str, body: bytes | None = None) -> tuple[int, Any]:
    try:
        with _DIRECT.open(urllib.request.Request(url, body, method="POST" if body else "GET"), timeout=30) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def opened(site: Site, name: str) -> tuple[int, Any]:
    response = site.client.get(f"/api/v1/graph?model={name}")
    return response.status_code, response.get_json()


def write(site: Site, name: str, model: Any) -> None:
    site.write(name, model.SerializeToString())


@pytest.mark.slow
def test_while_a_bomb_is_read_and_refused_every_other_request_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUALPROF_CACHE_DIR", str(tmp_path / "cache"))
    bomb = models.save(models.calling(10, 10), tmp_path / "runs" / "laughs.onnx").read_bytes()
    models.save(models.chain(["a"]), tmp_path / "runs" / "fine.onnx")
    with Server([tmp_path / "runs"], 0) as server:
        server.start()
        api = f"{server.url}api/v1/"
        while len(ask(f"{api}models")[1]["models"]) < 2:
            time.sleep(0.05)
        answers: list[tuple[int, Any]] = []
        waiting = [
            threading.Thread(target=lambda: answers.append(settled(f"{api}graph?model=laughs.onnx"))),
            threading.Thread(target=lambda: answers.append(ask(f"{api}models?name=mine.onnx", bomb))),
            threading.Thread(target=lambda: answers.append(ask(f"{api}uploads?name=mine.onnx", bomb))),
        ]
        for thread in waiting:
            thread.start()
        slowest, start = 0.0, time.monotonic()
        while any(thread.is_alive() for thread in waiting):
            began = time.monotonic()
            assert ask(f"{api}runs")[0] == 200
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < max(1, (time.monotonic() - start) / 4)  # a request does not wait for a reader
        assert [status for status, _ in answers] == [422, 422, 422]
        assert {body["error"].split(":")[0] for _, body in answers} == {"laughs.onnx", "mine.onnx"}
        assert all("11,111,111,111 nodes" in body["error"] and body["hint"] for _, body in answers)
        assert settled(f"{api}graph?model=fine.onnx")[0] == 200
        assert ask(f"{api}view/graph?model=laughs.onnx")[0] == 422


def settled(url: str) -> tuple[int, Any]:
    """The answer, once the model is read."""
    while True:
        status, body = ask(url)
        if status != 503:
            return status, body
        assert (body["state"], body["error"]) == ("parsing", f"{url.rpartition('=')[2]} is being read")
        time.sleep(0.05)


def test_a_model_being_read_reports_its_progress(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.server.api.models.WAIT_S", 0.01)
    site.models.asleep = True
    write(site, "big.onnx", models.chain(["a"]))
    status, body = opened(site, "big.onnx")
    assert (status, body["state"], body["progress"]) == (503, "parsing", 0.4)
    assert body["error"] == "big.onnx is being read"
    assert site.models.hurried


def test_a_model_is_read_once_for_each_version(site: Site) -> None:
    read: list[str] = []

    def task(path: str, *args: Any, **kwargs: Any) -> str:
        read.append(Path(path).name)
        return cache_graph(path, *args, **kwargs)

    site.models.task = task
    write(site, "a.onnx", models.chain(["a"]))
    for route in ("graph?model=a.onnx", "graph/node?model=a.onnx&node=0", "view/graph?model=a.onnx"):
        assert site.client.get(f"/api/v1/{route}").status_code == 200
    assert read == ["a.onnx"]
    write(site, "a.onnx", models.chain(["a", "b"]))
    assert opened(site, "a.onnx")[1]["model"]["operators"] == 2
    assert read == ["a.onnx", "a.onnx"]


def test_a_refused_model_is_not_read_again_until_a_reload(site: Site) -> None:
    read: list[str] = []
    site.models.task = lambda path, *_, **__: read.append(path) or "no such graph"
    write(site, "a.onnx", models.chain(["a"]))
    answers = [opened(site, "a.onnx") for _ in range(3)]
    assert {status for status, _ in answers} == {500}
    assert answers[0][1]["error"] == "a.onnx: its graph cannot be kept"
    assert len(read) == 1
    site.models.task = cache_graph
    assert opened(site, "a.onnx")[0] == 500
    site.client.post("/api/v1/reload")
    assert opened(site, "a.onnx")[0] == 200


def test_a_model_whose_process_died_is_retried_once(site: Site) -> None:
    write(site, "a.onnx", models.chain(["a"]))
    tries = []

    def dies(key: str, *_: Any) -> None:
        tries.append(key)
        assert site.models._listener
        site.models._listener.on_finished(key, Failure("a.onnx: the process died", "", 422, "ProcessDied"))

    site.models.submit = dies  # type: ignore[method-assign]
    assert opened(site, "a.onnx")[1]["error"] == "a.onnx: the process died"
    assert len(tries) == 2


def test_an_upload_keeps_its_name_and_unreadable_files_are_not_stored(site: Site) -> None:
    endless = models.calling(1, 1, recursive=True).SerializeToString()
    refused = site.client.post("/api/v1/models?name=mine.onnx", data=endless)
    assert (refused.status_code, refused.get_json()["error"]) == (422, "mine.onnx: its function 'f0' calls itself")
    assert site.client.get("/api/v1/models").get_json()["models"] == []
    unnamed = models.chain(["a"])
    unnamed.graph.name = ""
    entry = site.client.post("/api/v1/models?name=mine.onnx", data=unnamed.SerializeToString()).get_json()
    assert opened(site, entry["id"])[1]["model"]["name"] == "mine.onnx"


def test_waiting_uploads_leave_threads_for_other_requests(make_site: MakeSite) -> None:
    site = make_site()
    site.models.asleep = True
    data = models.chain(["a"]).SerializeToString()
    upload = f"/api/v1/models?name={os.getpid()}.onnx"
    four = [threading.Thread(target=lambda: site.app.test_client().post(upload, data=data)) for _ in range(4)]
    for thread in four:
        thread.start()
    end = time.monotonic() + 5
    while len(site.models.submitted) < 4 and time.monotonic() < end:
        time.sleep(0.01)
    answer = site.client.post(upload, data=data)
    assert answer.status_code == 503
    assert "4 other models are being uploaded" in answer.get_json()["error"]
    site.reader.close()
    for thread in four:
        thread.join(10)
    assert not any(thread.is_alive() for thread in four)


def matches(site: Site, run: str = "run") -> Any:
    return site.client.get(f"/api/v1/models/match?run={run}").get_json()


def test_the_model_of_a_run_matches_by_names_and_not_by_age(site: Site) -> None:
    # Device time of the run: op0 3.5 + 3.5, op1 8.5, op2 13.5 us, 29 in all.
    for age, (name, nodes) in enumerate(
        {
            "new.onnx": ["conv"],
            "part.onnx": ["op2"],
            "most.onnx": ["op1", "op2"],
            "all.onnx": ["op0", "op1", "op2"],
        }.items()
    ):
        write(site, f"models/{name}", models.chain(nodes))
        os.utime(site.folder / "models" / name, (2e9 - age, 2e9 - age))
    site.logdir.rescan()
    answer = matches(site)
    assert (answer["best"], answer["rivals"], answer["reading"]) == ("models/all.onnx", [], 0)
    assert [(m["model"], m["matched_ratio"], m["covered_ratio"]) for m in answer["matches"]] == [
        ("models/all.onnx", 1.0, 1.0),
        ("models/most.onnx", pytest.approx(22 / 29), 1.0),
        ("models/part.onnx", pytest.approx(13.5 / 29), 1.0),
        ("models/new.onnx", 0.0, 0.0),
    ]


def test_equally_matching_models_are_rivals_and_the_folder_of_the_run_decides(site: Site) -> None:
    names = ["op0", "op1", "op2"]
    write(site, "models/a.onnx", models.chain(names))
    write(site, "models/b.onnx", models.chain(names))
    answer = matches(site)
    assert {answer["best"], *answer["rivals"]} == {"models/a.onnx", "models/b.onnx"}
    write(site, "run/own.onnx", models.chain(names))
    answer = matches(site)
    assert (answer["best"], answer["rivals"]) == ("run/own.onnx", [])


def test_without_a_match_only_a_model_next_to_the_run_is_named(site: Site) -> None:
    write(site, "models/new.onnx", models.chain(["conv", "op0"]))  # 7 of 29 us: names that many models have
    answer = matches(site)
    assert (answer["best"], answer["matches"][0]["matched_ratio"]) == (None, pytest.approx(7 / 29))
    write(site, "run/own.onnx", models.chain(["conv"]))
    assert matches(site)["best"] == "run/own.onnx"
    write(site, "run/other.onnx", models.chain(["conv"]))
    assert matches(site)["best"] is None


def test_a_folder_of_several_runs_says_nothing_about_its_models(site: Site) -> None:
    for name in ("bert.json", "vit.json"):
        site.write(f"flat/{name}", kineto())
    write(site, "flat/a.onnx", models.chain(["conv"]))
    (model,) = site.client.get("/api/v1/models").get_json()["models"]
    assert model["run"] is None
    assert matches(site, "flat/vit")["best"] is None


def test_the_best_match_is_known_when_no_other_can_be_better(site: Site) -> None:
    write(site, "most.onnx", models.chain(["op1", "op2"]))
    write(site, "broken.onnx", models.calling(1, 1, recursive=True))
    assert matches(site)["best"] == "most.onnx"
    assert matches(site)["unread"] == 1
    site.models.asleep = True
    write(site, "late.onnx", models.chain(["conv"]))
    answer = matches(site)
    assert (answer["best"], answer["reading"]) == (None, 1)
    assert answer["matches"][0]["model"] == "most.onnx"
    site.models.asleep = False
    write(site, "all.onnx", models.chain(["op0", "op1", "op2"]))
    assert (matches(site)["best"], matches(site)["reading"]) == ("all.onnx", 1)


def test_a_run_without_measured_operators_has_no_match(site: Site) -> None:
    events = [{"ph": "X", "cat": "user_annotation", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]
    site.write("empty/trace.json", json.dumps({"schemaVersion": 1, "traceEvents": events}))
    write(site, "a.onnx", models.chain(["x"]))
    assert matches(site, "empty")["matches"][0]["matched_ratio"] is None
    assert matches(site, "empty")["best"] is None


def test_the_cache_of_models_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "visualprof.reader.logdir.models._MAX_CACHED_NODES", 10
    )  # a chain of n has n nodes and two ends
    graphs: list[weakref.ref[ModelGraph]] = []
    for name in "abc":
        write(site, f"{name}.onnx", models.chain(["x", "y"]))
        assert opened(site, f"{name}.onnx")[0] == site.client.get(f"/api/v1/view/graph?model={name}.onnx").status_code
        key = next(reversed(site.reader._graphs))
        graphs.append(weakref.ref(site.reader._graphs[key]))
    gc.collect()
    assert [graph() is None for graph in graphs] == [True, False, False]
