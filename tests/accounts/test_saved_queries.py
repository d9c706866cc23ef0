"""Saved queries of a team: private to their owner until shared."""

from __future__ import annotations

import pytest
from teams import Browser, Team

pytestmark = pytest.mark.both_databases


def names(browser: Browser) -> dict[str, bool]:
    """Return whether the user may change each query that the user sees."""
    queries = browser.ask("GET", "query/saved").get_json()["queries"]
    return {query["name"]: query["changeable"] for query in queries}


def test_a_saved_query_is_private_until_its_owner_shares_it(team: Team) -> None:
    ann, bob, eve, root = (team.browser(name) for name in ("ann", "bob", "eve", "root"))
    body = {"name": "slow kernels", "sql": "SELECT 1"}
    query = ann.ask("POST", "query/saved", json=body).get_json()["queries"][0]
    assert (query["visibility"], query["is_owner"]) == ("private", True)
    assert (names(bob), names(eve), names(root)) == ({}, {}, {"slow kernels": True})
    assert bob.ask("PATCH", f"query/saved/{query['id']}", json={"sql": "SELECT 2"}).status_code == 404

    project = ann.ask("POST", "projects", json={"name": "vision"}).get_json()["projects"][0]["id"]
    ann.ask("POST", f"projects/{project}/members", json={"email": "bob@example.org"})
    share = {"visibility": "project", "project": project}
    assert ann.ask("PATCH", f"query/saved/{query['id']}", json=share).status_code == 200
    assert (names(bob), names(eve)) == ({"slow kernels": False}, {})
    assert bob.ask("PATCH", f"query/saved/{query['id']}", json={"sql": "SELECT 2"}).status_code == 403
    assert bob.ask("DELETE", f"query/saved/{query['id']}").status_code == 403
    assert bob.ask("POST", "query/saved", json=body).status_code == 201  # names are unique per user

    ann.ask("PATCH", f"query/saved/{query['id']}", json={"visibility": "public"})
    assert names(eve) == {"slow kernels": False}


def test_a_deleted_project_makes_its_queries_private(team: Team) -> None:
    ann, bob = team.browser("ann"), team.browser("bob")
    project = ann.ask("POST", "projects", json={"name": "vision"}).get_json()["projects"][0]["id"]
    ann.ask("POST", f"projects/{project}/members", json={"email": "bob@example.org"})
    query = ann.ask("POST", "query/saved", json={"name": "a", "sql": "SELECT 1"}).get_json()["queries"][0]["id"]
    ann.ask("PATCH", f"query/saved/{query}", json={"visibility": "project", "project": project})
    assert names(bob) == {"a": False}
    ann.ask("DELETE", f"projects/{project}")
    assert (names(ann), names(bob)) == ({"a": True}, {})


def test_a_query_is_shared_only_with_a_project_of_the_user(team: Team) -> None:
    ann, bob = team.browser("ann"), team.browser("bob")
    project = bob.ask("POST", "projects", json={"name": "audio"}).get_json()["projects"][0]["id"]
    query = ann.ask("POST", "query/saved", json={"name": "a", "sql": "SELECT 1"}).get_json()["queries"][0]["id"]
    path = f"query/saved/{query}"
    assert ann.ask("PATCH", path, json={"visibility": "project", "project": project}).status_code == 404
    assert ann.ask("PATCH", path, json={"visibility": "project"}).status_code == 400
    assert ann.ask("PATCH", path, json={"visibility": "public", "project": project}).status_code == 400
