"""SQL over HTTP: answers, files, errors, the schema, stored and saved queries."""

from __future__ import annotations

from typing import Any

import pytest
from sites import MakeSite, Site, kineto

from visualprof.capture import LogWriter
from visualprof.query.schema import EVENT_TABLES, TABLES

pytest.importorskip("duckdb")

KERNELS = "SELECT id, name, dur FROM kernel ORDER BY dur DESC, id"


def ask(site: Site, **body: Any) -> Any:
    return site.client.post("/api/v1/query", json={"run": "run", **body})


def test_a_statement_is_answered_with_kinds_and_the_traces_of_its_ids(site: Site) -> None:
    answer = ask(site, sql=KERNELS).get_json()
    assert answer["columns"]["name"] == ["kernel2", "kernel1", "kernel0", "kernel0"]
    assert answer["columns"]["dur"] == [13_500, 8_500, 3_500, 3_500]
    assert answer["kinds"] == {"id": "id", "name": "name", "dur": "ns"}
    assert (answer["total_rows"], answer["truncated"]) == (4, False)
    assert answer["traces"] == [{"trace": 0, "worker": "trace", "span": "1", "first_id": 0, "events": 12}]
    event = answer["columns"]["id"][0]
    shown = site.client.get(f"/api/v1/timeline/event?run=run&event={event}").get_json()
    assert shown["name"] == "kernel2"
    by_address = site.client.get("/api/v1/query", query_string={"run": "run", "sql": KERNELS}).get_json()
    assert by_address["columns"] == answer["columns"]


def test_run_data_next_to_a_recording_are_rows(site: Site) -> None:
    with LogWriter(site.folder / "run") as writer:
        writer.add_scalar("loss", 0.5, 1)
        writer.add_hparams({"lr": 0.25}, ["loss"])
    site.logdir.rescan()
    values = ask(site, sql="SELECT tag, step, value FROM scalar").get_json()["columns"]
    assert values == {"tag": ["loss"], "step": [1], "value": [0.5]}
    trials = ask(site, sql="SELECT kind, name, number FROM trial ORDER BY kind").get_json()["columns"]
    assert trials == {"kind": ["metric", "parameter"], "name": ["loss", "lr"], "number": [0.5, 0.25]}
    with LogWriter(site.folder / "run", filename_suffix=".2") as writer:
        writer.add_scalar("loss", 0.25, 2)
    site.logdir.rescan()
    assert ask(site, sql="SELECT count(*) AS n FROM scalar").get_json()["columns"] == {"n": [2]}
    schema = site.client.get("/api/v1/query/schema?run=run").get_json()
    assert {table["name"]: table["rows"] for table in schema["tables"]}["scalar"] == 2


def test_a_limit_cuts_the_rows_and_the_answer_says_so(site: Site) -> None:
    answer = ask(site, sql=KERNELS, limit=2).get_json()
    assert (answer["total_rows"], answer["truncated"]) == (2, True)


def test_results_are_files_of_csv_and_parquet(site: Site) -> None:
    csv = ask(site, sql="SELECT name, dur FROM kernel WHERE dur > 10000", format="csv")
    assert csv.get_data(as_text=True).split() == ["\ufeffname,dur", "kernel2,13500"]
    parquet = ask(site, sql=KERNELS, format="parquet")
    assert parquet.get_data()[:4] == b"PAR1"
    assert parquet.headers["Content-Disposition"] == 'attachment; filename="query.parquet"'


def test_parameters_are_values_of_the_statement(site: Site) -> None:
    own = ask(site, sql="SELECT name FROM kernel WHERE dur > $ns", parameters={"ns": 10_000}).get_json()
    assert own["columns"] == {"name": ["kernel2"]}
    by_address = {"run": "run", "sql": "SELECT name FROM kernel WHERE dur > $ns", "ns": "10000"}
    assert site.client.get("/api/v1/query", query_string=by_address).get_json()["columns"] == {"name": ["kernel2"]}
    stored = ask(site, stored="kernel_pairs", parameters={"max_ns": "20000"}).get_json()
    assert stored["columns"]["next"] == ["kernel2", "kernel1", "kernel0"]


def test_errors_have_their_position_and_the_nearest_name(site: Site) -> None:
    answer = ask(site, sql="SELECT name,\n  durr\nFROM kernel")
    assert answer.status_code == 400
    body = answer.get_json()
    assert "LINE 2:   durr\n          ^^^^" in body["error"]
    assert body["hint"].startswith("the nearest column is dur of kernel:")
    assert ask(site, sql="DROP VIEW kernel").status_code == 400
    assert ask(site, sql="SELECT 1", run="other").status_code == 404


def test_a_form_of_another_site_cannot_ask(site: Site) -> None:
    answer = site.client.post("/api/v1/query", data='{"run": "run", "sql": "SELECT 1"}', content_type="text/plain")
    assert answer.status_code == 415


def test_the_schema_lists_tables_with_rows_and_functions(site: Site) -> None:
    schema = site.client.get("/api/v1/query/schema?run=run").get_json()
    tables = {table["name"]: table for table in schema["tables"]}
    assert tables.keys() == TABLES.keys()
    assert schema["available"]
    assert (tables["kernel"]["rows"], tables["slice"]["rows"]) == (4, 12)
    assert {
        "name": "dur",
        "type": "BIGINT",
        "kind": "ns",
        "unit": "ns",
        "unit_zh": "ns",
        "definition": "Duration; 0 for an instant.",
        "definition_zh": "持续时间；瞬时事件为 0。",
    } in (tables["kernel"]["columns"])
    assert {name for name, table in tables.items() if table["has_events"]} == EVENT_TABLES
    assert "covered" in {function["name"] for function in schema["functions"]}


def test_tables_of_events_have_their_ids() -> None:
    meanings = {TABLES[name].columns["id"].definition.split()[0] for name in EVENT_TABLES}
    assert meanings <= {"Row", "Event"}
    others = {name: table.columns["id"].definition for name, table in TABLES.items() if "id" in table.columns}
    assert not [
        name for name, text in others.items() if text.startswith("Row of the event") and name not in EVENT_TABLES
    ]


def test_twenty_stored_queries_have_a_question_in_both_languages(site: Site) -> None:
    queries = site.client.get("/api/v1/query/stored").get_json()["queries"]
    assert len(queries) == 20
    for query in queries:
        assert query["question"].isascii()
        assert not query["question_zh"].isascii()
        assert query["sql"].startswith(("SELECT", "WITH"))


def test_nothing_is_canceled_if_nothing_runs(site: Site) -> None:
    assert site.client.post("/api/v1/query/cancel", json={"id": "x"}).get_json() == {"canceled": False}


def test_a_server_without_queries_refuses_them_and_has_no_page(make_site: MakeSite) -> None:
    site = make_site(queries="off")
    site.write("run/trace.json", kineto())
    answer = ask(site, sql="SELECT 1")
    assert (answer.status_code, answer.get_json()["error"]) == (403, "this server runs no queries")
    schema = site.client.get("/api/v1/query/schema?run=run").get_json()
    assert (schema["available"], schema["reason"]) == (False, "this server runs no queries")
    assert site.client.get("/api/v1/views").get_json()["queries"] is False


def test_a_read_only_server_answers_queries_and_saves_none(make_site: MakeSite) -> None:
    site = make_site(read_only=True)
    site.write("run/trace.json", kineto())
    assert ask(site, sql="SELECT 1 AS n").get_json()["columns"] == {"n": [1]}
    assert site.client.get("/api/v1/views").get_json()["queries"] is True
    saved = site.client.post("/api/v1/query/saved", json={"name": "kernels", "sql": KERNELS})
    assert saved.status_code == 403
    assert site.client.get("/api/v1/query/saved").get_json() == {"queries": []}


def test_a_query_is_saved_changed_and_deleted(site: Site) -> None:
    body = {"name": " kernels ", "sql": KERNELS, "parameters": {"ns": 5, "name": "gemm"}}
    created = site.client.post("/api/v1/query/saved", json=body)
    assert created.status_code == 201
    (saved,) = created.get_json()["queries"]
    assert (saved["name"], saved["parameters"], saved["is_owner"]) == ("kernels", {"ns": 5, "name": "gemm"}, True)
    path = f"/api/v1/query/saved/{saved['id']}"
    (changed,) = site.client.patch(path, json={"sql": "SELECT 2"}).get_json()["queries"]
    assert (changed["name"], changed["sql"]) == ("kernels", "SELECT 2")
    assert site.client.get("/api/v1/query/saved").get_json()["queries"] == [changed]
    assert site.client.delete(path).get_json() == {"queries": []}
    assert site.client.delete(path).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "KERNELS", "sql": "SELECT 1"}, 409),
        ({"name": "", "sql": "SELECT 1"}, 400),
        ({"name": "a\nb", "sql": "SELECT 1"}, 400),
        ({"name": "empty", "sql": ""}, 400),
        ({"name": "long", "sql": "x" * 64_001}, 400),
        ({"name": "odd", "sql": "SELECT 1", "parameters": {"a": [1]}}, 400),
    ],
)
def test_names_are_unique_and_statements_have_limits(site: Site, body: dict[str, Any], status: int) -> None:
    site.client.post("/api/v1/query/saved", json={"name": "kernels", "sql": KERNELS})
    assert site.client.post("/api/v1/query/saved", json=body).status_code == status


def test_a_user_has_a_limited_number_of_queries(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visualprof.remote.queue.store.saved_queries.MAX_PER_USER", 1)
    site.client.post("/api/v1/query/saved", json={"name": "first", "sql": "SELECT 1"})
    second = site.client.post("/api/v1/query/saved", json={"name": "second", "sql": "SELECT 1"})
    assert (second.status_code, second.get_json()["error"]) == (429, "you have 1 saved queries")
