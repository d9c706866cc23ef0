"""Attacks on a team server that no other test covers: on every route, and beyond the limits."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Any
from urllib.parse import quote

import pytest
from teams import MODEL_FILE, PASSWORD, SHELL, Browser, Team
from test_permissions import BODIES, NEEDS, QUERIES, Asked, asked

from tests.conftest import ROOT
from visualprof.accounts import login_attempts

__all__ = ["asked"]

HOSTILE = [
    "../runs",
    "..%2f..%2fetc%2fpasswd",
    "..\\..\\etc",
    "/etc/passwd",
    "shared/../shared",
    "a\0b",
    "shared/",
    ".",
]
DEEP, NUMBERS = b"[" * 100_000, b'{"email": NaN, "hours": 1e999, "name": -Infinity}'


def test_names_that_lead_elsewhere_are_of_nothing(asked: Asked) -> None:
    """As run, model and report; also where links are made and runs are shared."""
    root = asked.team.browser("root")
    listing = "GET runs/headlines"  # answers for the runs of a list that it knows
    about = [r for r, query in QUERIES.items() if ("RUN" in query or "MODEL" in query) and r != listing]
    assert len(about) > 15
    for name in HOSTILE:
        asked.subjects |= {"RUN": quote(name, safe=""), "MODEL": quote(name, safe="")}
        statuses = {route: asked.by(root, route) for route in about}
        # A backslash or a control character is no JSON in a list of runs.
        expected = {route: (400, 404) if route.startswith("GET data/") else (404,) for route in about}
        assert {route: status for route, status in statuses.items() if status not in expected[route]} == {}, name
        with asked.answer(root, listing) as answer:
            assert answer.get_json()["headlines"] == {}, name
        link, access = {"run": name, "hours": 1}, {"run": name, "visibility": "private"}
        assert root.ask("POST", "links", json=link).status_code == 404, name
        assert root.ask("PUT", "runs/access", json=access).status_code == 404, name


def test_invalid_bodies_are_rejected_by_every_route(asked: Asked) -> None:
    root = asked.team.browser("root")
    for body in (b"", b"{", b"\xff", DEEP, NUMBERS, b'{"a":' * 5000, b"1" * 5000):
        answers = {route: sent(root, asked, route, body, "application/json") for route in sorted(BODIES)}
        assert {route: status for route, status in answers.items() if status not in (400, 404)} == {}, body[:20]


def test_bodies_of_other_types_or_without_end_are_refused_everywhere(asked: Asked) -> None:
    """Any page may send a form or plain text."""
    root = asked.team.browser("root")
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        answers = {route: sent(root, asked, route, b"{}", kind) for route in sorted(BODIES)}
        assert set(answers.values()) == {415}, (kind, answers)
    key = b'{"' + b"k" * (10 << 20) + b'": 1}'
    answers = {route: sent(root, asked, route, key, "application/json") for route in sorted(BODIES)}
    assert set(answers.values()) == {413}, answers


def sent(browser: Browser, asked: Asked, route: str, body: bytes, kind: str) -> int:
    path = route
    for name, value in asked.subjects.items():
        path = path.replace(name, value)
    method, path = path.split(" ")
    return browser.ask(method, path, data=body, content_type=kind).status_code


def test_every_route_that_changes_something_wants_the_pages_word(asked: Asked) -> None:
    """Forms of other sites also send cookies."""
    ann = asked.team.browser("root")
    changes = [route for route in NEEDS if not route.startswith("GET ")]
    ann.token = ""
    word = {route: asked.by(ann, route) for route in changes if NEEDS[route] != "anyone"}
    assert set(word.values()) == {401}, word
    client = ann.client
    for headers in ({"Origin": "null"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        foreign = {}
        for route in changes:
            method, path = route.split(" ")
            foreign[route] = client.open(f"/api/v1/{path}", method=method, json={}, headers=headers).status_code
        assert set(foreign.values()) == {403}, (headers, foreign)


def test_a_cached_answer_is_not_confirmed_without_permission(asked: Asked) -> None:
    """Neither by its tag nor by any: whoever may see it no more is told that it is not there."""
    ann, bob = asked.team.browser("ann"), asked.team.browser("bob")
    for path in (
        f"jobs/{asked.team.job}",
        f"graph?model={asked.subjects['MODEL']}",
        f"runs/access?run={asked.team.run}",
    ):
        tag = ann.ask("GET", path).headers["ETag"]
        assert ann.ask("GET", path, headers={"If-None-Match": tag}).status_code == 304
        for etag in (tag, "*"):
            assert bob.ask("GET", path, headers={"If-None-Match": etag}).status_code == 404


def test_an_unknown_address_takes_as_long_as_a_known_address(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    from pwdlib import PasswordHash

    checked: list[str] = []
    verify = PasswordHash.verify

    def noted(self: PasswordHash, password: str, kept: str) -> bool:
        checked.append(kept.rpartition("$")[0].rpartition("$")[0])  # how, without salt and hash
        return verify(self, password, kept)

    monkeypatch.setattr(PasswordHash, "verify", noted)
    team.accounts.users.update(SHELL, team.ids["bob"], disabled=True)
    for email in ("ann@example.org", "bob@example.org", "x@example.org"):
        assert team.browser().log_in(email, "not this one at all").status_code == 401
    assert len(checked) == 3
    assert len(set(checked)) == 1


def test_guessing_is_stopped_whatever_address_is_claimed(team: Team) -> None:
    browser = team.browser()
    statuses = [
        browser.ask(
            "POST",
            "session",
            json={"email": "ann@example.org", "password": "not this one"},
            headers={"X-Forwarded-For": f"198.51.100.{i}", "X-Real-IP": f"198.51.100.{i}"},
        ).status_code
        for i in range(login_attempts.MAX_PER_ACCOUNT + 1)
    ]
    assert statuses == [*[401] * login_attempts.MAX_PER_ACCOUNT, 429]


def test_the_first_registered_user_is_not_an_administrator(make_site: Any) -> None:
    site = make_site(accounts=True, registration="open")
    browser = Browser(site.app.test_client())
    body = {"email": "first@example.org", "password": PASSWORD, "name": "First"}
    answer = browser.ask("POST", "session/register", json=body)
    assert answer.status_code in (200, 201)
    assert answer.get_json()["person"]["role"] == "member"


def test_a_zip_in_a_zip_is_not_unpacked(team: Team) -> None:
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("net.onnx", MODEL_FILE.read_bytes())
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())
    bob, blobs = team.browser("bob"), team.remote.folder / "blobs"
    before = sorted(blobs.iterdir())
    assert bob.ask("POST", "uploads?name=net.zip", data=outer.getvalue()).status_code == 422
    assert sorted(blobs.iterdir()) == before


def test_the_page_never_inserts_texts_as_html() -> None:
    """Names, logs and messages are put in as text; tooltips of charts are HTML, and escape what they take."""
    sources = [path for ending in ("vue", "ts") for path in (ROOT / "visualprof/frontend/src").rglob(f"*.{ending}")]
    assert len(sources) > 100
    raw = re.compile(
        r"v-html|innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment"
    )
    assert [path.name for path in sources if ".test." not in path.name and raw.search(path.read_text("utf-8"))] == []
