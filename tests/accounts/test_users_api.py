"""Registering, logging in and out, tokens, codes: as the API answers, with what an attacker would try."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest
from teams import PASSWORD, SHELL, Browser, Team

from visualprof.accounts import login_attempts, passwords, sessions
from visualprof.server.session_token import TOKEN_HEADER

pytestmark = pytest.mark.both_databases

NEW = "another four words here"


def cookie_of(browser: Browser) -> str:
    cookie = browser.client.get_cookie("visualprof")
    return cookie.value if cookie else ""


def test_a_user_logs_in_and_out(team: Team) -> None:
    browser = team.browser()
    assert browser.ask("GET", "session").get_json() == {
        "trusted": False,
        "accounts": True,
        "registration": "invitation",
        "person": None,
        "token": "",
        "by_proxy": False,
        "issuer": "",
        "by_mail": False,
        "direct": False,
        "leave": "",
    }
    answer = browser.log_in(" Ann@Example.org ")
    assert answer.get_json()["person"] == {
        "id": team.ids["ann"],
        "email": "ann@example.org",
        "name": "ann",
        "role": "member",
        "session": True,
    }
    header = answer.headers["Set-Cookie"]
    assert all(part in header for part in ("HttpOnly", "SameSite=Lax", "Path=/"))
    cookie = cookie_of(browser)
    assert browser.ask("DELETE", "session").status_code == 200
    assert browser.ask("GET", "runs").status_code == 401
    browser.client.set_cookie("visualprof", cookie)
    assert browser.ask("GET", "runs").status_code == 401, "the session itself is over"


def test_a_wrong_password_and_an_unknown_address_get_the_same_answer(team: Team) -> None:
    answers = [team.browser().log_in(email, "not this one at all") for email in ("ann@example.org", "x@example.org")]
    assert [answer.status_code for answer in answers] == [401, 401]
    assert answers[0].get_json() == answers[1].get_json()
    team.accounts.users.update(SHELL, team.ids["bob"], disabled=True)
    assert team.browser().log_in("bob@example.org").get_json() == answers[0].get_json()


def test_guessing_is_stopped_for_a_minute(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = team.browser()
    for _ in range(login_attempts.MAX_PER_ACCOUNT):
        assert browser.log_in("ann@example.org", "not this one at all").status_code == 401
    with monkeypatch.context() as reading:
        reading.setattr(team.accounts.database, "write", lambda: pytest.fail("they keep nobody from writing"))
        assert browser.log_in("ann@example.org").status_code == 429
    assert browser.log_in("bob@example.org").status_code == 200, "others log in meanwhile"
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 61 * 10**9)
    assert browser.log_in("ann@example.org").status_code == 200


def test_many_log_ins_at_once_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_PATIENCE_S", 0.01)
    hashes = passwords.Passwords()
    turns = [hashes._turn() for _ in range(passwords.MAX_CONCURRENT)]
    for turn in turns:
        turn.__enter__()
    with pytest.raises(passwords.ServerBusy):
        hashes.hash(PASSWORD)
    turns[0].__exit__(None, None, None)
    assert hashes.verify(PASSWORD, hashes.hash(PASSWORD))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="a thread is bound to cores on Linux alone")
def test_hashing_passwords_uses_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes, cores, whole = passwords.Passwords(), list[int](), os.sched_getaffinity(0)
    kept = hashes.hash(PASSWORD)
    verify = hashes._argon2.verify

    def noted(password: str, kept: str) -> bool:
        cores.append(len(os.sched_getaffinity(0)))
        return verify(password, kept)

    monkeypatch.setattr(hashes, "_argon2", SimpleNamespace(verify=noted))
    assert hashes.verify(PASSWORD, kept)
    assert cores == [1]
    assert os.sched_getaffinity(0) == whole, "the thread goes on wherever there is room"


def test_logging_in_makes_a_new_session(team: Team) -> None:
    browser = team.browser()
    browser.client.set_cookie("visualprof", "vp_w_chosen-by-somebody-else")
    browser.log_in("ann@example.org")
    first = cookie_of(browser)
    assert first != "vp_w_chosen-by-somebody-else"
    browser.log_in("ann@example.org")
    assert cookie_of(browser) != first


def test_a_cookie_alone_changes_nothing(team: Team) -> None:
    ann, bob = team.browser("ann"), team.browser("bob")
    ann.token = ""
    refused = ann.ask("POST", "projects", json={"name": "x"})
    assert (refused.status_code, refused.get_json()["error"]) == (401, "this page has lost its session")
    assert ann.ask("POST", "projects", json={"name": "x"}, headers={TOKEN_HEADER: bob.token}).status_code == 401
    foreign = {"Origin": "http://127.0.0.1:8150"}
    assert bob.ask("POST", "projects", json={"name": "x"}, headers=foreign).status_code == 403


def test_sessions_expire(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    idle, busy = team.browser("ann"), team.browser("ann")
    begun = time.time_ns()
    step = int(sessions.MAX_IDLE_S * 0.9 * 1e9)
    for passed in range(step, sessions.MAX_AGE_S * 10**9, step):
        monkeypatch.setattr(time, "time_ns", lambda passed=passed: begun + passed)
        assert busy.ask("GET", "account").status_code == 200
    assert idle.ask("GET", "account").status_code == 401
    monkeypatch.setattr(time, "time_ns", lambda: begun + (sessions.MAX_AGE_S + 5) * 10**9)
    assert busy.ask("GET", "account").status_code == 401


def test_a_user_ends_another_own_session(team: Team) -> None:
    this_browser, other_browser = team.browser("ann"), team.browser("ann")
    listed = this_browser.ask("GET", "account").get_json()["sessions"]
    assert [session["current"] for session in listed].count(True) == 1
    for session in listed:
        if not session["current"]:
            this_browser.ask("DELETE", f"account/sessions/{session['id']}")
    assert other_browser.ask("GET", "account").status_code == 401
    assert this_browser.ask("GET", "account").status_code == 200


def test_a_new_password_ends_sessions_and_tokens(team: Team) -> None:
    this_browser, other_browser = team.browser("ann"), team.browser("ann")
    token = this_browser.ask("POST", "account/tokens", json={"name": "ci"}).get_json()["new_token"]
    wrong = this_browser.ask("POST", "account/password", json={"old": "no", "new": NEW})
    assert (wrong.status_code, wrong.get_json()["error"]) == (401, "the old password is wrong")
    assert this_browser.ask("POST", "account/password", json={"old": PASSWORD, "new": "short"}).status_code == 400
    assert this_browser.ask("POST", "account/password", json={"old": PASSWORD, "new": NEW}).status_code == 200
    assert other_browser.ask("GET", "account").status_code == 401
    assert (
        Browser(other_browser.client.application.test_client())
        .ask("GET", "runs", headers={TOKEN_HEADER: token})
        .status_code
        == 401
    )
    assert team.browser().log_in("ann@example.org").status_code == 401
    assert team.browser().log_in("ann@example.org", NEW).status_code == 200


def test_a_token_allows_only_its_scope(team: Team) -> None:
    root = team.browser("root")
    answer = root.ask("POST", "account/tokens", json={"name": "reads", "role": "viewer", "days": 1}).get_json()
    token = answer["new_token"]
    assert token.startswith("vp_u_")
    shell = team.browser()
    for headers in ({TOKEN_HEADER: token}, {"Authorization": f"Bearer {token}"}):
        assert shell.ask("GET", "runs", headers=headers).status_code == 200
        assert shell.ask("POST", "projects", json={"name": "x"}, headers=headers).status_code == 403
        assert shell.ask("GET", "users", headers=headers).status_code == 403
    root.token = token  # beside a cookie the token counts
    assert root.ask("GET", "users").status_code == 403


def test_a_token_ends(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, shell = team.browser("ann"), team.browser()
    token = ann.ask("POST", "account/tokens", json={"name": "ci", "days": 1}).get_json()["new_token"]
    assert shell.ask("GET", "runs", headers={TOKEN_HEADER: token}).status_code == 200
    (listed,) = ann.ask("GET", "account").get_json()["tokens"]
    assert listed["used_ns"]
    assert token not in ann.ask("GET", "account").get_data(as_text=True)
    now = time.time_ns()
    with monkeypatch.context() as later:
        later.setattr(time, "time_ns", lambda: now + 25 * 3600 * 10**9)
        assert shell.ask("GET", "runs", headers={TOKEN_HEADER: token}).status_code == 401
    assert ann.ask("DELETE", f"account/tokens/{listed['id']}").get_json()["tokens"] == []
    assert shell.ask("GET", "runs", headers={TOKEN_HEADER: token}).status_code == 401


TOKENS: list[tuple[dict[str, Any], str]] = [
    ({"name": "", "days": 1}, "name"),
    ({"name": "x", "days": 0}, "days"),
    ({"name": "x", "days": 1e9}, "days"),
    ({"name": "x", "days": float("nan")}, ""),
    ({"name": "x", "role": "admin"}, "role"),
    ({"name": "x", "role": "god"}, ""),
    ({"name": "x", "user": "root"}, ""),
]


def test_impossible_tokens(team: Team) -> None:
    ann = team.browser("ann")
    for body, message in TOKENS:
        answer = ann.ask("POST", "account/tokens", json=body)
        assert answer.status_code == 400, body
        assert message in answer.get_json()["error"]


def test_a_user_registers_with_an_invitation(team: Team) -> None:
    root, new = team.browser("root"), team.browser()
    body = {"email": "kim@example.org", "password": NEW, "name": "Kim 金"}
    assert new.ask("POST", "session/register", json=body).status_code == 403
    code = root.ask("POST", "invitations", json={"email": "kim@example.org", "role": "viewer"}).get_json()["code"]
    wrong = new.ask("POST", "session/register", json={**body, "email": "lee@example.org", "code": code})
    assert wrong.status_code == 400
    answer = new.ask("POST", "session/register", json={**body, "code": code})
    assert answer.get_json()["person"]["role"] == "viewer"
    assert new.ask("GET", "account").status_code == 200
    again = {**body, "email": "b@example.org", "code": code}
    assert team.browser().ask("POST", "session/register", json=again).status_code == 400


def test_impossible_addresses_and_weak_passwords(team: Team) -> None:
    root = team.browser("root")

    def refused(email: str, password: str) -> tuple[int, str]:
        answer = root.ask("POST", "users", json={"email": email, "password": password})
        return answer.status_code, answer.get_json()["error"].partition(":")[0]

    for email in ("", "x", "x@", "@y.z", "a b@c.de", "a@b", "a@b..c", "<x>@y.z", "x" * 300 + "@y.z"):
        assert refused(email, NEW) == (400, "email"), email
    for password in ("", "short", "aaaaaaaaaaaaaaaa", "kim@example.org", "x" * 1001):
        assert refused("kim@example.org", password) == (400, "password"), password


def test_registering_never_makes_an_administrator(team: Team) -> None:
    team.accounts.registration = "open"
    body = {"email": "kim@example.org", "password": NEW, "role": "admin"}
    answer = team.browser().ask("POST", "session/register", json=body)
    assert answer.status_code == 400
    registration = team.accounts.users.register(SHELL, "kim@example.org", "", NEW, "open")
    assert registration.role == "member"
    response = team.browser("root").ask("POST", "users", json={"email": "KIM@example.org", "password": NEW})
    assert response.status_code == 409


def test_a_forgotten_password(team: Team) -> None:
    root, ann = team.browser("root"), team.browser("ann")
    code = root.ask("POST", f"users/{team.ids['ann']}/password").get_json()["code"]
    fresh = team.browser()
    assert fresh.ask("POST", "session/password", json={"code": "vp_c_guess", "password": NEW}).status_code == 400
    assert fresh.ask("POST", "session/password", json={"code": code, "password": NEW}).status_code == 200
    assert fresh.ask("POST", "session/password", json={"code": code, "password": PASSWORD}).status_code == 400
    assert ann.ask("GET", "account").status_code == 401
    assert fresh.log_in("ann@example.org", NEW).status_code == 200


def test_an_invitation_does_not_reset_a_password(team: Team) -> None:
    code = team.browser("root").ask("POST", "invitations", json={"email": "ann@example.org"}).get_json()["code"]
    assert team.browser().ask("POST", "session/password", json={"code": code, "password": NEW}).status_code == 400


def test_a_role_that_changes_ends_sessions(team: Team) -> None:
    root, ann = team.browser("root"), team.browser("ann")
    root.ask("PATCH", f"users/{team.ids['ann']}", json={"role": "viewer"})
    assert ann.ask("GET", "account").status_code == 401
    again = team.browser("ann")
    assert again.ask("POST", "projects", json={"name": "x"}).status_code == 403
    refused = root.ask("PATCH", f"users/{team.ids['root']}", json={"role": "member"})
    assert (refused.status_code, refused.get_json()["error"]) == (409, "no administrator would be left")
    assert root.ask("GET", "users").status_code == 200


def test_the_audit_log_records_who_did_what(team: Team) -> None:
    team.browser().log_in("ann@example.org", "not this one at all")
    team.browser("root").ask("POST", "invitations", json={"email": "=kim@example.org"})
    root = team.browser("root")
    deeds = root.ask("GET", "audit").get_json()["deeds"]
    assert [deed["seq"] for deed in deeds] == sorted((deed["seq"] for deed in deeds), reverse=True)
    audit = [(deed["action"], deed["email"]) for deed in deeds]
    assert ("log-in refused", "ann@example.org") in audit
    assert ("invite person", "root@example.org") in audit
    assert all(deed["address"] for deed in deeds)
    older = root.ask("GET", f"audit?before={deeds[-1]['seq']}&limit=1").get_json()["deeds"]
    assert older == []
    csv = root.ask("GET", "audit?format=csv")
    assert csv.mimetype == "text/csv"
    assert PASSWORD not in csv.get_data(as_text=True)


def test_a_local_server_has_no_accounts(make_site: Any) -> None:
    client = make_site(token="vp_s_x").client
    assert client.get("/api/v1/session").get_json()["accounts"] is False
    answer = client.get("/api/v1/account")
    assert (answer.status_code, answer.get_json()["hint"]) == (404, "start it with --accounts")
