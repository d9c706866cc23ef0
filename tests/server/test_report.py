"""The report: what its one file holds, how large it gets, and that no name in it is more than text."""

from __future__ import annotations

import base64
import gzip
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_hostile_names import IMAGE, NAMES, SCRIPT, trace
from tests.server.sites import MakeSite, Site, kineto
from visualprof.server import report as made

CODE = "console.log('</script><img src=x onerror=window.owned=1>')"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "report.js").write_text(CODE)
    (folder / "report.css").write_text("body { color: red }")
    return folder


@pytest.fixture
def built(make_site: MakeSite, dist: Path) -> Site:
    site = make_site(dist=dist, token="vp_s_secret")
    site.write("run/trace.json", kineto())
    return site


def unpacked(page: str, block: str) -> bytes:
    """One of the packed parts."""
    match = re.search(rf'<script type="text/plain" id="{block}">([^<]*)</script>', page)
    assert match, block
    return gzip.decompress(base64.b64decode(match[1], validate=True))


def held(page: str) -> tuple[dict[str, Any], bytes]:
    """The answers and the tiles."""
    data = unpacked(page, "held")
    length = struct.unpack_from("<I", data)[0]
    return json.loads(data[4 : 4 + length]), data[4 + length :]


def report(site: Site, run: str = "run") -> str:
    answer = site.client.get("/api/v1/report", query_string={"run": run})
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.slow
def test_the_report_contains_the_answers_of_the_api(built: Site) -> None:
    facts, tiles = held(report(built))
    assert unpacked(report(built), "code").decode() == CODE
    assert facts["answers"]["view/operator"] == built.client.get("/api/v1/view/operator?run=run").get_json()
    assert facts["answers"]["charts/kernel&top=5"] == built.client.get("/api/v1/charts/kernel?run=run&top=5").get_json()
    # 7 + 7 + 17 + 27 us and 5 us between: 73 us are one tile of 256 buckets of 512 ns, the first of the levels.
    assert facts["first"] == {"win": "0~73000", "area": "0~73000"}
    levels = {int(key.split("/")[1]) for key in facts["tiles"]}
    assert levels == set(range(10))
    for kind, address in (("g", "timeline/tile?group={}&"), ("p", "timeline/path?")):
        key, (offset, size) = max(one for one in facts["tiles"].items() if one[0].startswith(kind))
        group, level, index = key[1:].split("/")
        tile = built.client.get(f"/api/v1/{address.format(group)}run=run&level={level}&index={index}").data
        assert tiles[offset : offset + size] == tile
    assert {"op0", "op1", "op2", "cudaLaunchKernel", "kernel0"} <= set(facts["names"].values())
    operators = [facts["answers"][key]["name"] for key in facts["answers"] if key.startswith("timeline/event")]
    assert len(operators) == 12  # every event


@pytest.mark.slow
def test_names_in_a_report_are_escaped_and_nothing_is_requested(built: Site) -> None:
    built.write(f"{IMAGE}/trace.json", trace())
    page = report(built, IMAGE)
    skeleton = re.sub(r">[A-Za-z0-9+/=]{100,}<", "><", page)
    assert len(re.findall("<script|<img|<iframe|<link", skeleton)) == 4  # three packed ones, and what unpacks them
    assert f"<title>{IMAGE.replace('<', '&lt;').replace('>', '&gt;')} · visualprof</title>" in skeleton
    assert not re.search(r"src=|href=|https?:|url\(", re.sub("<title>.*?</title>", "", skeleton))
    assert "default-src 'none'; script-src 'unsafe-inline'" in skeleton
    facts, _ = held(page)
    assert {IMAGE, SCRIPT} <= set(facts["answers"]["view/operator"]["columns"]["name"]) <= set(NAMES)


@pytest.mark.slow
def test_a_report_contains_nothing_about_the_machine(built: Site, tmp_path: Path) -> None:
    built.write("other/trace.json", kineto())
    text = json.dumps(held(report(built))[0])
    assert str(tmp_path) not in text
    assert "vp_s_secret" not in text
    assert "other" not in [run["id"] for run in held(report(built))[0]["answers"]["runs/changes"]["runs"]]
    assert held(report(built))[0]["answers"]["status"]["logdirs"] == []


@pytest.mark.slow
def test_a_report_contains_the_changes_since_another_run(built: Site) -> None:
    built.write("before/trace.json", kineto(2))
    page = built.client.get("/api/v1/report?run=run&base=before").text
    facts, _ = held(page)
    assert (facts["run"], facts["base"]) == ("run", "before")
    assert {run["id"] for run in facts["answers"]["runs/changes"]["runs"]} == {"run", "before"}
    asked = "/api/v1/diff?run=run&base=before"
    assert facts["answers"]["diff"] == built.client.get(asked).get_json()
    assert (
        facts["answers"]["diff&group=shape&view=operator"]
        == built.client.get(f"{asked}&view=operator&group=shape").get_json()
    )
    rows = facts["answers"]["diff&view=kernel"]["rows"]["columns"]
    # kernel2 of 13.5 us is new.
    assert rows["status"][rows["name"].index("kernel2")] == "added"
    assert built.client.get("/api/v1/report?run=run&base=run").status_code == 400
    assert built.client.get("/api/v1/report?run=run&base=nowhere").status_code == 404


@pytest.mark.slow
def test_a_too_large_report_has_fewer_rows(built: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    built.write("many/trace.json", kineto(300))
    rows = {held(report(built, "many"))[0]["answers"]["view/operator"]["total_rows"]}
    whole = len(report(built, "many"))
    monkeypatch.setattr(made, "MAX_REPORT_BYTES", whole - 4000)
    smaller = report(built, "many")
    answer = held(smaller)[0]["answers"]["view/operator"]
    assert len(smaller) <= whole - 4000
    assert rows == {answer["total_rows"]} == {300}
    assert len(answer["columns"]["name"]) in (200, 40, 300)
    monkeypatch.setattr(made, "MAX_REPORT_BYTES", 4000)
    refused = built.client.get("/api/v1/report?run=many")
    assert (refused.status_code, refused.get_json()["hint"]) == (413, "its names are too long")


@pytest.mark.slow
def test_reports_are_made_one_at_a_time_and_not_for_disconnected_clients(
    built: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def second(*_: object) -> bytes:
        answer = built.app.test_client().get("/api/v1/report?run=run")
        asked.append(answer.status_code)
        return b""

    with monkeypatch.context() as patched:
        patched.setattr("visualprof.server.api.report_file.build_report", second)
        assert built.client.get("/api/v1/report?run=run").status_code == 200
    assert asked == [503]
    gone = {"waitress.client_disconnected": lambda: True}
    assert built.client.get("/api/v1/report?run=run", environ_overrides=gone).status_code == 503
    report(built)


def test_unavailable_views_are_reported(built: Site, dist: Path) -> None:
    built.write("deep/trace.json", '{"schemaVersion":1,"traceEvents":[{"args":' + "[" * 100_000 + "]" * 100_000 + "}]}")
    assert built.client.get("/api/v1/report?run=nowhere").status_code == 404
    assert built.client.get("/api/v1/report?run=deep").status_code == 422
    (dist / "report.js").unlink()
    refused = built.client.get("/api/v1/report?run=run")
    assert (refused.status_code, refused.get_json()["hint"]) == (409, "in a checkout, `make page` builds it")
