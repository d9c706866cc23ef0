"""Two runs compared over HTTP."""

from __future__ import annotations

import csv
import io

import pytest
from sites import MakeSite, Site, kineto
from werkzeug.test import TestResponse


@pytest.fixture
def pair(make_site: MakeSite) -> Site:
    """`old` has op0 to op2, `new` op3, too."""
    site = make_site()
    site.write("old/trace.json", kineto(3))
    site.write("new/trace.json", kineto(4))
    return site


def diff(site: Site, **query: object) -> TestResponse:
    return site.client.get("/api/v1/diff", query_string={"run": "new", "base": "old", **query})


def test_a_run_against_another(pair: Site) -> None:
    answer = diff(pair, view="kernel").get_json()
    assert (answer["base"]["path"], answer["new"]["path"]) == ("old/trace.json", "new/trace.json")
    columns = answer["rows"]["columns"]
    assert (columns["name"][0], columns["status"][0], columns["delta_ns"][0]) == ("kernel3", "added", 18_500)
    assert set(columns["status"][1:]) == {"same"}
    swapped = diff(pair, run="old", base="new", view="kernel").get_json()
    assert (swapped["rows"]["columns"]["status"][0], swapped["step"]["delta_ns"]) == (
        "removed",
        -answer["step"]["delta_ns"],
    )


def test_rows_are_paged_sorted_and_csv(pair: Site) -> None:
    page = diff(pair, view="kernel", table="rows", sort="new_ns", order="asc", limit=2).get_json()
    assert (page["columns"]["name"], page["total_rows"]) == (["kernel0", "kernel1"], 4)
    difference = diff(pair, view="kernel", table="rows", search="kernel3", format="csv")
    assert [row["status"] for row in csv.DictReader(io.StringIO(difference.data.decode("utf-8-sig")))] == ["added"]


@pytest.mark.parametrize("view", ["overview", "operator", "kernel", "runtime"])
def test_every_view_of_a_pair(pair: Site, view: str) -> None:
    answer = diff(pair, view=view).get_json()
    assert answer["rows"]["total_rows"] > 0
    assert sum(answer["parts"]["columns"]["delta_ns"]) == answer["step"]["delta_ns"] > 0


def test_missing_data_gives_409_and_missing_runs_404(pair: Site) -> None:
    answer = diff(pair, view="memory")
    assert answer.status_code == 409
    assert "neither" in answer.get_json()["error"]
    assert diff(pair, base="other").status_code == diff(pair, run="other").status_code == 404
    assert diff(pair, base="").status_code == diff(pair, view="nonsense").status_code == 400


def test_either_being_parsed_is_503(pair: Site) -> None:
    pair.parser.asleep = True
    pair.write("late/trace.json", kineto(5))
    for query in ({"run": "late"}, {"base": "late"}):
        answer = diff(pair, **query)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
