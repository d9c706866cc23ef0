"""The description of the API."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from sites import Site

from visualprof.server.api import schema
from visualprof.server.api.openapi import document, export

EXPORTED = Path(__file__).parents[2] / "visualprof" / "frontend" / "openapi.json"


def test_the_exported_document_is_the_served_one(site: Site, tmp_path: Path) -> None:
    export(tmp_path / "openapi.json")
    assert json.loads((tmp_path / "openapi.json").read_text()) == site.client.get("/api/v1/openapi.json").get_json()


def test_the_document_in_the_tree_is_up_to_date() -> None:
    assert EXPORTED.is_file(), "run python -m visualprof.server.api.openapi"
    assert json.loads(EXPORTED.read_text()) == document(), "run python -m visualprof.server.api.openapi (or make types)"


def test_every_route_is_described(site: Site) -> None:
    routes = {
        re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
        for rule in site.app.url_map.iter_rules()
        if rule.rule.startswith("/api/") and not rule.rule.startswith("/api/v1/agent/")  # docs/remote.md has those
    }
    described = set(document()["paths"])
    assert routes <= described


def test_everything_described_is_there(site: Site) -> None:
    routes = site.app.url_map.bind("localhost")
    for path, operations in document()["paths"].items():
        for method in operations:
            endpoint, _ = routes.match(re.sub(r"[{}]", "", path), method.upper())
            assert not endpoint.startswith("spa."), f"{method} {path}"


def test_every_reference_leads_somewhere() -> None:
    whole = document()
    for reference in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(whole)):
        assert reference in whole["components"]["schemas"]


def test_every_view_has_its_own_address_and_parameters() -> None:
    operator = document()["paths"]["/api/v1/view/operator"]["get"]
    named = {each["name"]: each for each in operator["parameters"]}
    assert "shape" in named["group"]["schema"]["enum"]
    assert named["run"]["required"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/v1/status", schema.Status),
        ("/api/v1/runs", schema.RunsAnswer),
        ("/api/v1/views", schema.ViewsAnswer),
        ("/api/v1/view/overview?run=run", schema.OverviewAnswer),
        ("/api/v1/view/operator?run=run", schema.OperatorAnswer),
        ("/api/v1/view/kernel?run=run", schema.KernelAnswer),
        ("/api/v1/view/runtime?run=run", schema.Table),
        ("/api/v1/charts/operator?run=run", schema.ChartsAnswer),
    ],
)
def test_answers_are_as_described(site: Site, path: str, kind: type[msgspec.Struct]) -> None:
    answer = site.client.get(path)
    assert answer.status_code == 200
    msgspec.json.decode(answer.data, type=kind)
    described = {each for field in msgspec.structs.fields(kind) for each in [field.encode_name]}
    assert set(answer.get_json()) <= described, "answers hold nothing that is not described"
