"""The description of the API."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from sites import Site

from visualprof.server.api.openapi import build_document, digest
from visualprof.server.api.runs import RunsAnswer, Status
from visualprof.server.api.views import ChartsAnswer, ViewsAnswer
from visualprof.views import view

TYPES = Path(__file__).parents[2] / "visualprof" / "frontend" / "src" / "api" / "types.ts"


@pytest.mark.skipif(version("msgspec") < "0.22", reason="earlier versions describe the same types in another way")
def test_the_pages_types_are_up_to_date() -> None:
    assert TYPES.read_text().startswith(f"// {digest()}\n"), "run `make types`"


def test_every_route_is_described(site: Site) -> None:
    routes = {
        re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule)
        for rule in site.app.url_map.iter_rules()
        if rule.rule.startswith("/api/")
        and not rule.rule.startswith("/api/v1/agent/")  # docs/agent-protocol.md has those
    }
    described = set(build_document()["paths"])
    assert routes <= described


def test_every_described_route_exists(site: Site) -> None:
    routes = site.app.url_map.bind("localhost")
    for path, operations in build_document()["paths"].items():
        for method in operations:
            endpoint, _ = routes.match(re.sub(r"[{}]", "", path), method.upper())
            assert not endpoint.startswith("spa."), f"{method} {path}"


def test_every_reference_leads_somewhere() -> None:
    whole = build_document()
    for reference in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(whole)):
        assert reference in whole["components"]["schemas"]


def test_every_view_has_its_own_address_and_parameters() -> None:
    operator = build_document()["paths"]["/api/v1/view/operator"]["get"]
    named = {parameter["name"]: parameter for parameter in operator["parameters"]}
    assert "shape" in named["group"]["schema"]["enum"]
    assert named["run"]["required"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/v1/status", Status),
        ("/api/v1/runs", RunsAnswer),
        ("/api/v1/views", ViewsAnswer),
        ("/api/v1/view/overview?run=run", view("overview").answer_type),
        ("/api/v1/view/operator?run=run", view("operator").answer_type),
        ("/api/v1/view/kernel?run=run", view("kernel").answer_type),
        ("/api/v1/view/runtime?run=run", view("runtime").answer_type),
        ("/api/v1/charts/operator?run=run", ChartsAnswer),
    ],
)
def test_answers_are_as_described(site: Site, path: str, kind: type[msgspec.Struct]) -> None:
    answer = site.client.get(path)
    assert answer.status_code == 200
    msgspec.json.decode(answer.data, type=kind, dec_hook=lambda _, column: column)
    described = {field.encode_name for field in msgspec.structs.fields(kind)}
    assert set(answer.get_json()) <= described, "answers hold nothing that is not described"
