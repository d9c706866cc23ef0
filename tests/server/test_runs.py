"""Status, runs, reload."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from sites import MakeSite, Site, kineto

from visualprof import __version__
from visualprof.reader import native


def test_status_describes_the_server(make_site: MakeSite) -> None:
    site = make_site(language="zh", read_only=True)
    body = site.client.get("/api/v1/status").get_json()
    assert body["language"] == "zh"
    assert body["read_only"] is True
    assert body["logdirs"] == [str(site.folder)]
    assert body["watching"] == "polling"
    assert (body["version"], body["native_reader"]) == (__version__, native.describe_state())


def test_runs_lists_the_summary_of_a_parsed_file(site: Site) -> None:
    body = site.client.get("/api/v1/runs").get_json()
    (run,) = body["runs"]
    assert (run["id"], run["name"], run["frameworks"]) == ("run", "run", ["pytorch"])
    (worker,) = run["workers"]
    (span,) = worker["spans"]
    assert span["file"] == "run/trace.json"
    assert (span["state"], span["progress"], span["format"], span["events"]) == ("ready", 1.0, "kineto", 12)
    assert span["size_bytes"] == (site.folder / "run" / "trace.json").stat().st_size
    assert "operator" in span["views"]
    assert span["error"] is None


def test_an_unparsed_file_has_nulls_not_zeros(make_site: MakeSite) -> None:
    site = make_site()
    site.parser.asleep = True
    site.write("trace.json", kineto())
    span = site.client.get("/api/v1/runs").get_json()["runs"][0]["workers"][0]["spans"][0]
    assert (span["state"], span["progress"]) == ("parsing", 0.4)
    assert (span["events"], span["duration_ns"], span["framework"]) == (None, None, None)


def test_a_broken_file_has_its_reason_and_a_stranger_is_skipped(site: Site) -> None:
    site.write("broken.json", '{"schemaVersion": 1, "traceEvents": 7}')
    site.write("notes.json", '{"hello": 1}')
    body = site.client.get("/api/v1/runs").get_json()
    spans = {span["file"]: span for run in body["runs"] for worker in run["workers"] for span in worker["spans"]}
    assert spans["run/trace.json"]["state"] == "ready"
    if "broken.json" in spans:
        assert spans["broken.json"]["state"] == "failed"
        assert spans["broken.json"]["error"]
    assert "notes.json" in [skipped["file"] for skipped in body["skipped"]]


def test_hostile_names_survive(site: Site) -> None:
    names = ["<script>alert(1)<", "数据", "a&b=c#d", "new\nline"]
    for name in names:
        site.write(f"{name}/rank0.json", kineto())
    ids = [run["id"] for run in site.client.get("/api/v1/runs").get_json()["runs"]]
    assert set(names) < set(ids)
    for name in names:
        answer = site.client.get("/api/v1/view/operator", query_string={"run": name})
        assert answer.status_code == 200, name


def test_a_name_that_is_not_utf8_does_not_break_the_answer(site: Site) -> None:
    try:
        site.write("odd\udcff/rank0.json", kineto())
    except (OSError, UnicodeError):
        return  # a file system that has no such names
    answer = site.client.get("/api/v1/runs")
    assert answer.status_code == 200
    assert r"odd\xff" in [run["id"] for run in answer.get_json()["runs"]]


def test_polling_without_a_change_gives_304(site: Site) -> None:
    first = site.client.get("/api/v1/runs")
    again = site.client.get("/api/v1/runs", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    site.write("other/rank0.json", kineto())
    changed = site.client.get("/api/v1/runs", headers={"If-None-Match": first.headers["ETag"]})
    assert changed.status_code == 200
    assert changed.get_json()["revision"] > first.get_json()["revision"]


def changes(site: Site, **query: object) -> dict[str, Any]:
    return site.client.get("/api/v1/runs/changes", query_string=query).get_json()


def test_changes_are_complete_at_first_and_then_incremental(site: Site) -> None:
    whole = site.client.get("/api/v1/runs").get_json()
    first = changes(site)
    assert first == {**whole, "since": None, "removed": []}
    nothing = changes(site, since=first["revision"])
    assert nothing == {
        "revision": first["revision"],
        "since": first["revision"],
        "runs": [],
        "removed": [],
        "skipped": None,
    }
    site.write("other/rank0.json", kineto())
    site.write("notes.json", '{"hello": 1}')
    second = changes(site, since=first["revision"])
    assert ([run["id"] for run in second["runs"]], second["removed"]) == (["other"], [])
    assert [skipped["file"] for skipped in second["skipped"]] == ["notes.json"]
    (site.folder / "run" / "trace.json").unlink()
    site.logdir.rescan()
    third = changes(site, since=second["revision"])
    assert (third["runs"], third["removed"], third["skipped"]) == ([], ["run"], None)
    assert [run["id"] for run in site.client.get("/api/v1/runs").get_json()["runs"]] == ["other"]


def test_changes_since_another_server_are_everything(site: Site) -> None:
    for since in (0, 7, 2**53):
        assert [run["id"] for run in changes(site, since=since)["runs"]] == ["run"]
    assert site.client.get("/api/v1/runs/changes?since=x").status_code == 400


def test_the_files_of_the_shown_run_are_read_first(make_site: MakeSite) -> None:
    site = make_site()
    site.parser.asleep = True
    for name in ("a/rank0", "a/rank1", "b/rank0", "b/rank1"):
        site.write(f"{name}.json", kineto())
    site.parser.hurried.clear()
    changes(site, shown="a")
    # The last one that is wanted goes first.
    assert [key.partition(":")[2] for key in site.parser.hurried] == ["a/rank1.json", "a/rank0.json"]
    changes(site, shown="none such")
    site.parser.hurried.clear()
    changes(site, shown="c")
    site.write("c/rank0.json", kineto())  # is found after it was asked for
    assert [key.partition(":")[2] for key in site.parser.hurried] == ["c/rank0.json"]


def test_a_view_of_a_run_has_all_its_files_read_first(make_site: MakeSite) -> None:
    site = make_site()
    site.parser.asleep = True
    for name in ("a/rank0", "a/rank1", "b/rank0"):
        site.write(f"{name}.json", kineto())
    site.parser.hurried.clear()
    assert site.client.get("/api/v1/view/distributed?run=a").status_code == 503
    assert {key.partition(":")[2] for key in site.parser.hurried} == {"a/rank0.json", "a/rank1.json"}


def test_reload_looks_at_once(site: Site) -> None:
    (site.folder / "new.json").write_text(kineto())
    assert len(site.client.get("/api/v1/runs").get_json()["runs"]) == 1
    assert site.client.post("/api/v1/reload").status_code == 204
    assert len(site.client.get("/api/v1/runs").get_json()["runs"]) == 2


def test_a_read_only_server_refuses_to_reload(make_site: MakeSite) -> None:
    answer = make_site(read_only=True).client.post("/api/v1/reload")
    assert answer.status_code == 403
    assert "read-only" in json.loads(answer.data)["error"]


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_a_run_whose_folder_is_not_utf_8_can_be_opened(site: Site) -> None:
    folder = os.fsencode(site.folder) + b"/run\xff\xfe"
    os.mkdir(folder)
    Path(os.fsdecode(folder + b"/trace.json")).write_text(kineto())
    site.logdir.rescan()
    run = next(run for run in site.client.get("/api/v1/runs").get_json()["runs"] if run["id"] != "run")
    assert run["id"] == r"run\xff\xfe"
    query = {"run": run["id"], "worker": run["workers"][0]["id"]}
    answer = site.client.get("/api/v1/view/operator", query_string=query)
    assert answer.status_code == 200, answer.text
