"""Host names and headers."""

from __future__ import annotations

import pytest
from sites import MakeSite, Site

from visualprof.server.guard import CONTENT_SECURITY_POLICY


@pytest.mark.parametrize("host", ["localhost", "localhost:8040", "127.0.0.1:8040", "[::1]:8040", "LOCALHOST."])
def test_this_machine_may_call(site: Site, host: str) -> None:
    assert site.client.get("/api/v1/status", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_other_names_may_not(site: Site, host: str) -> None:
    answer = site.client.get("/api/v1/status", headers={"Host": host})
    assert answer.status_code == 403
    assert "--allow-host" in answer.get_json()["hint"]


def test_a_name_can_be_allowed(make_site: MakeSite) -> None:
    client = make_site(allowed_hosts=("dash.example",)).client
    assert client.get("/api/v1/status", headers={"Host": "Dash.Example:443"}).status_code == 200
    assert client.get("/api/v1/status", headers={"Host": "other.example"}).status_code == 403


def test_any_name_can_be_allowed(make_site: MakeSite) -> None:
    client = make_site(allowed_hosts=("*",)).client
    assert client.get("/api/v1/status", headers={"Host": "other.example"}).status_code == 200


def test_a_server_for_the_network_answers_to_addresses_not_to_strange_names(make_site: MakeSite) -> None:
    client = make_site(host="0.0.0.0").client
    assert client.get("/api/v1/status", headers={"Host": "10.1.2.3:8040"}).status_code == 200
    assert client.get("/api/v1/status", headers={"Host": "[fe80::1]:8040"}).status_code == 200
    assert client.get("/api/v1/status", headers={"Host": "evil.example"}).status_code == 403


def test_another_sites_page_may_not_reload(site: Site) -> None:
    assert site.client.post("/api/v1/reload", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


@pytest.mark.parametrize("path", ["/", "/api/v1/status", "/api/v1/nope", "/nope.js"])
def test_every_answer_carries_the_policy(site: Site, path: str) -> None:
    headers = site.client.get(path).headers
    assert headers["Content-Security-Policy"] == CONTENT_SECURITY_POLICY
    rules = {
        name: values for name, _, values in (rule.strip().partition(" ") for rule in CONTENT_SECURITY_POLICY.split(";"))
    }
    assert rules.get("script-src", rules["default-src"]) == "'self'"  # no inline scripts
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
