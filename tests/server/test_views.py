"""Views over HTTP."""

from __future__ import annotations

import csv
import gzip
import io
import json

import pytest
from sites import MakeSite, Site, kineto
from werkzeug.test import TestResponse

from tests.server_settings import server_settings
from visualprof.reader.logdir.summary import Failure
from visualprof.server.app import create_app
from visualprof.views.answers import disk_cache


def operators(site: Site, **query: object) -> TestResponse:
    return site.client.get("/api/v1/view/operator", query_string={"run": "run", **query})


def names(answer: TestResponse) -> list[str]:
    assert answer.status_code == 200, answer.get_json()
    return answer.get_json()["columns"]["name"]


def test_a_table_has_columns_and_counts(site: Site) -> None:
    body = operators(site).get_json()
    assert sorted(body["columns"]["name"]) == ["op0", "op1", "op2"]
    assert (body["total_rows"], body["matching_rows"], body["offset"]) == (3, 3, 0)


def test_sort_search_and_page(site: Site) -> None:
    assert names(operators(site, sort="host_total_ns", order="asc")) == ["op0", "op1", "op2"]
    assert names(operators(site, sort="host_total_ns")) == ["op2", "op1", "op0"]
    assert names(operators(site, search="OP1")) == ["op1"]
    assert names(operators(site, **{"search.name": "p2"})) == ["op2"]
    assert names(operators(site, **{"is.name": "op"})) == []
    page = operators(site, sort="name", order="asc", offset=1, limit=1)
    assert names(page) == ["op1"]
    assert (page.get_json()["total_rows"], page.get_json()["offset"]) == (3, 1)
    assert operators(site, search="op2").get_json()["matching_rows"] == 1
    assert names(operators(site, sort="calls,host_total_ns", order="asc,desc")) == ["op2", "op1", "op0"]
    assert names(operators(site, sort="calls,host_total_ns", order="asc")) == ["op1", "op2", "op0"]


def test_tables_have_two_hundred_rows_by_default(make_site: MakeSite) -> None:
    site = make_site()
    site.write("run/trace.json", kineto(operators=300))
    assert len(names(operators(site))) == 200
    assert len(names(operators(site, limit=250))) == 250
    assert len(csv_rows(operators(site, format="csv"))) == 300


def csv_rows(answer: TestResponse) -> list[dict[str, str]]:
    assert answer.status_code == 200
    return list(csv.DictReader(io.StringIO(answer.data.decode("utf-8-sig"))))


def test_csv_is_a_file_of_the_same_rows(site: Site) -> None:
    answer = operators(site, format="csv", sort="host_total_ns")
    assert answer.mimetype == "text/csv"
    assert 'filename="operator.csv"' in answer.headers["Content-Disposition"]
    assert [row["name"] for row in csv_rows(answer)] == ["op2", "op1", "op0"]


def test_a_single_table_can_be_selected(site: Site) -> None:
    steps = site.client.get("/api/v1/view/overview", query_string={"run": "run", "table": "steps"})
    assert steps.status_code == 200
    assert "kernel_ns" in steps.get_json()["columns"]
    wrong = site.client.get("/api/v1/view/overview", query_string={"run": "run", "table": "nope"})
    assert wrong.status_code == 400
    assert "steps" in wrong.get_json()["hint"]


def test_csv_of_a_view_of_several_tables_wants_a_name(site: Site) -> None:
    answer = site.client.get("/api/v1/view/overview", query_string={"run": "run", "format": "csv"})
    assert answer.status_code == 400
    named = site.client.get("/api/v1/view/overview", query_string={"run": "run", "format": "csv", "table": "events"})
    assert csv_rows(named)
    assert 'filename="overview-events.csv"' in named.headers["Content-Disposition"]


@pytest.mark.parametrize(
    "query",
    [
        {"sort": "nope"},
        {"order": "up"},
        {"sort": "name", "order": "asc,desc"},
        {"offset": "-1"},
        {"limit": "10001"},
        {"limit": "many"},
        {"format": "xml"},
        {"nonsense": "1"},
        {"group": "nope"},
        {"search.nope": "x"},
        {"table": "nope"},
    ],
)
def test_a_wrong_parameter_is_400_with_the_choices(site: Site, query: dict[str, str]) -> None:
    answer = operators(site, **query)
    assert answer.status_code == 400
    assert answer.get_json()["error"]


@pytest.mark.parametrize("query", [{"run": "nope"}, {"worker": "nope"}, {"span": "nope"}])
def test_what_does_not_exist_is_404(site: Site, query: dict[str, str]) -> None:
    answer = operators(site, **query)
    assert answer.status_code == 404
    assert "nope" in answer.get_json()["error"]


def test_a_missing_run_parameter_gives_400_and_a_missing_view_404(site: Site) -> None:
    assert site.client.get("/api/v1/view/operator").status_code == 400
    assert site.client.get("/api/v1/view/nope?run=run").status_code == 404
    assert site.client.get("/api/v1/charts/nope?run=run").status_code == 404


def test_a_view_without_data_is_409(make_site: MakeSite) -> None:
    site = make_site()
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    site.write("run/trace.json", json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    answer = site.client.get("/api/v1/view/runtime?run=run")
    assert answer.status_code == 409
    assert "operator" in answer.get_json()["hint"]


@pytest.mark.parametrize(
    ("view", "lacks"), [("counters", "metrics of kernels"), ("ranks", "communication between ranks")]
)
def test_a_run_without_data_for_a_view_gets_its_requirements(make_site: MakeSite, view: str, lacks: str) -> None:
    site = make_site()
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    site.write("run/trace.json", json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    answer = site.client.get(f"/api/v1/view/{view}?run=run")
    assert answer.status_code == 409
    assert lacks in answer.get_json()["hint"]


def test_a_file_that_is_being_parsed_is_503_and_jumps_the_queue(make_site: MakeSite) -> None:
    site = make_site()
    site.parser.asleep = True
    site.write("run/trace.json", kineto())
    answer = operators(site)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"
    assert (answer.get_json()["state"], answer.get_json()["progress"]) == ("parsing", 0.4)
    assert site.parser.hurried


def test_an_empty_file_is_503_with_the_reason(make_site: MakeSite) -> None:
    site = make_site()
    (site.folder / "run").mkdir(parents=True)
    (site.folder / "run" / "trace.json").touch()
    site.logdir.rescan()
    answer = operators(site)
    assert (answer.status_code, answer.get_json()["state"]) == (503, "growing")
    assert "empty" in answer.get_json()["error"]


def test_an_empty_file_without_a_writer_gives_422_with_the_reason(make_site: MakeSite) -> None:
    site = make_site()
    site.write("run/trace.json", "")
    answer = operators(site)
    assert answer.status_code == 422
    assert "empty" in answer.get_json()["error"]


def test_a_file_that_cannot_be_read_is_422(make_site: MakeSite) -> None:
    site = make_site()
    site.parser.failure = Failure("event 7 has no 'ts'", "is it cut?", kind="FormatError")
    site.write("run/trace.json", kineto())
    answer = operators(site)
    assert (answer.status_code, answer.get_json()) == (
        422,
        {"error": "event 7 has no 'ts'", "hint": "is it cut?", "page": "formats#damaged-files"},
    )


def test_a_file_that_brought_the_reader_down_is_500(make_site: MakeSite) -> None:
    site = make_site()
    site.parser.failure = Failure("the process that read it was ended by SIGKILL", "out of memory", 500)
    site.write("run/trace.json", kineto())
    assert operators(site).status_code == 500


def test_an_answer_that_did_not_change_is_304(site: Site) -> None:
    first = operators(site)
    again = site.client.get("/api/v1/view/operator?run=run", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")


def test_large_answers_are_packed_on_request(make_site: MakeSite) -> None:
    site = make_site()
    site.write("run/trace.json", kineto(operators=300))
    packed = site.client.get("/api/v1/view/operator?run=run", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert json.loads(gzip.decompress(packed.data)) == operators(site).get_json()
    assert "Content-Encoding" not in operators(site).headers
    small = site.client.get("/api/v1/status", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in small.headers


def test_views_are_listed_with_parameters(site: Site) -> None:
    views = {view["name"]: view for view in site.client.get("/api/v1/views").get_json()["views"]}
    group = next(parameter for parameter in views["operator"]["parameters"] if parameter["name"] == "group")
    assert (group["type"], group["default"]) == ("choice", "name")
    assert "shape" in group["choices"]


def test_charts_are_options(site: Site) -> None:
    answer = site.client.get("/api/v1/charts/operator?run=run&top=2")
    assert answer.status_code == 200
    assert "host_self" in answer.get_json()["charts"]
    assert site.client.get("/api/v1/charts/operator?run=run&top=0").status_code == 400


def test_every_listed_view_answers(site: Site) -> None:
    span = site.client.get("/api/v1/runs").get_json()["runs"][0]["workers"][0]["spans"][0]
    assert span["views"]
    for view in span["views"]:
        for kind in ("view", "charts"):
            assert site.client.get(f"/api/v1/{kind}/{view}?run=run").status_code == 200, (kind, view)


def test_an_internal_error_gives_500_without_details(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.logdir.listing = lambda: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    answer = operators(site)
    assert answer.status_code == 500
    assert "division" not in answer.get_data(as_text=True)
    assert "division" in caplog.text


def test_bounds_filter_rows(site: Site) -> None:
    total = operators(site, sort="host_total_ns").get_json()["columns"]["host_total_ns"]
    assert names(operators(site, **{"min.host_total_ns": total[0]})) == ["op2"]
    assert names(operators(site, sort="name", order="asc", **{"max.host_total_ns": total[1]})) == ["op0", "op1"]
    assert operators(site, **{"min.host_total_ns": "much"}).status_code == 400


def test_a_limit_applies_to_all_tables(site: Site) -> None:
    events = site.client.get("/api/v1/view/overview", query_string={"run": "run", "limit": 1}).get_json()["events"]
    assert len(events["columns"]["category"]) == 1
    assert events["total_rows"] >= 1


def test_a_cached_answer_reads_no_columns(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first = operators(site)
    monkeypatch.setattr(site.logdir, "open", lambda span: pytest.fail("opened"))
    assert operators(site).data == first.data
    assert names(operators(site, sort="name", order="asc", limit=1)) == ["op0"]
    assert site.client.get("/api/v1/charts/operator?run=run").status_code == 200
    assert site.client.get("/api/v1/view/memory?run=run").status_code == 409


def test_the_clipboard_gets_the_same_rows_between_tabs(site: Site) -> None:
    answer = operators(site, format="tsv", sort="host_total_ns")
    assert answer.mimetype == "text/tab-separated-values"
    rows = list(csv.DictReader(io.StringIO(answer.data.decode()), delimiter="\t"))
    assert rows == csv_rows(operators(site, format="csv", sort="host_total_ns"))


def test_a_server_that_starts_again_answers_without_columns(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "_MIN_COMPUTE_S", -1.0)
    first = operators(site)
    again = create_app(site.logdir, server_settings(), reader=site.reader).test_client()
    monkeypatch.setattr(site.logdir, "open", lambda span: pytest.fail("opened"))
    assert again.get("/api/v1/view/operator?run=run").data == first.data
