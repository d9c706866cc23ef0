"""Hardening of a team server: headers, deceptive addresses, and guesses from many addresses."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from sites import MakeSite
from teams import PASSWORD, Browser, Team

from visualprof.accounts import login_attempts
from visualprof.accounts.email_addresses import is_deceptive
from visualprof.accounts.notifications.webhook import _may_reach
from visualprof.remote.queue.errors import TooManyAttempts


def test_answers_behind_accounts_are_stored_nowhere(team: Team) -> None:
    ann = team.browser("ann")
    runs = ann.ask("GET", "runs")
    assert runs.headers["Cache-Control"] == "no-store"
    again = ann.ask("GET", "runs", headers={"If-None-Match": runs.headers["ETag"]})
    assert (again.status_code, again.headers["Cache-Control"]) == (304, "no-store")
    assert team.browser().ask("GET", "runs").headers["Cache-Control"] == "no-store"


def test_answers_without_accounts_may_be_revalidated(make_site: MakeSite) -> None:
    answer = make_site().client.get("/api/v1/runs")
    assert answer.headers["Cache-Control"] == "no-cache"
    assert "Strict-Transport-Security" not in answer.headers


def test_browsers_stay_with_https_where_the_server_has_it(make_site: MakeSite) -> None:
    site = make_site(base_url="https://dash.example.org")
    answer = site.client.get("/api/v1/runs", headers={"Host": "dash.example.org"})
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


@pytest.mark.parametrize("address", ["168.63.129.16", "::ffff:168.63.129.16", "192.0.0.1", "192.0.0.192", "fec0::1"])
def test_webhooks_reach_no_special_address(address: str) -> None:
    assert not _may_reach(ipaddress.ip_address(address), [])
    assert _may_reach(ipaddress.ip_address(address), ["168.63.129.0/24", "192.0.0.0/24", "fec0::/10"])


@pytest.mark.parametrize(
    "email",
    [
        "аnn@example.org",
        "ann@exаmple.org",
        "ann@ехаmple.org",
        "сосо@example.org",
        "ａnn@example.org",
        "ann\u200b@example.org",
        "a\u0301nn@example.org",
        "admın@example.org",
        "ɑnn@example.org",
        "αnn@example.org",
        "ann\u202e@example.org",
        "١٢@example.org",
    ],
)
def test_an_address_that_looks_like_another_is_refused(team: Team, email: str) -> None:
    answer = team.browser("root").ask("POST", "users", json={"email": email, "password": PASSWORD})
    assert (answer.status_code, answer.get_json()["error"].partition(":")[0]) == (400, "email")


@pytest.mark.parametrize(
    "email",
    [
        "ann@example.org",
        "müller@bücher.example",
        "почта@пример.рф",
        "张三@例子.公司",
        "さくらサクラ桜@example.jp",
        "김@example.kr",
    ],
)
def test_an_address_in_one_script_is_accepted(email: str) -> None:
    assert not is_deceptive(email)


def test_guesses_from_many_addresses_are_counted_together(team: Team) -> None:
    database, limit = team.accounts.database, login_attempts.MAX_PER_ACCOUNT_FROM_ALL
    for number in range(limit):
        login_attempts.count_attempt(database, f"198.51.100.{number}", "ann@example.org")
    with pytest.raises(TooManyAttempts, match=f"{limit} attempts"):
        login_attempts.count_attempt(database, "203.0.113.1", "ann@example.org")
    login_attempts.count_attempt(database, "203.0.113.1", "bob@example.org")


def register(browser: Browser, **body: Any) -> tuple[int, Any]:
    answer = browser.ask("POST", "session/register", json={"password": PASSWORD, "name": "", **body})
    return answer.status_code, answer.get_json()


def test_registering_does_not_tell_who_has_an_account(team: Team) -> None:
    root, visitor = team.browser("root"), team.browser()
    anyone = root.ask("POST", "invitations", json={"role": "member"}).get_json()["code"]
    other = root.ask("POST", "invitations", json={"role": "member", "email": "kim@example.org"}).get_json()["code"]
    taken = register(visitor, email="ann@example.org", code=anyone)
    assert taken[0] == 400
    assert register(visitor, email="ann@example.org", code=other) == taken
    assert register(visitor, email="lee@example.org", code=other) == taken
    assert "ann@" not in str(taken)
    assert register(visitor, email="lee@example.org", code=anyone)[0] == 200, "the code was not used up"
