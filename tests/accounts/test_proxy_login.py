"""Users logged in by a proxy: only the header of the proxy counts."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import pytest
from sites import MakeSite, Site
from teams import PASSWORD, SHELL
from werkzeug.test import TestResponse

from tests.server_settings import server_settings
from visualprof.accounts.principal import Registration
from visualprof.accounts.service import Accounts
from visualprof.cli import main
from visualprof.server.job_service import JobService
from visualprof.server.serve import Server
from visualprof.server.session_token import TOKEN_HEADER

PROXY, STRANGER = "10.1.2.3", "192.0.2.7"


class Proxied:
    """A server behind a proxy."""

    def __init__(
        self, make_site: MakeSite, registration: Registration = "invitation", header: str = "X-Remote-User"
    ) -> None:
        self.site: Site = make_site(
            accounts=True, registration=registration, user_header=header, proxies=("10.0.0.0/8",)
        )
        self.accounts = Accounts(JobService(self.site.logdir.roots[0]).open().database, registration)

    def ask(
        self, method: str, path: str, user: str = "", peer: str = PROXY, token: str = "", **options: Any
    ) -> TestResponse:
        headers = {**({"X-Remote-User": user} if user else {}), **({TOKEN_HEADER: token} if token else {})}
        headers |= options.pop("headers", {})
        base = {"REMOTE_ADDR": peer}
        return self.site.app.test_client().open(
            f"/api/v1/{path}", method=method, headers=headers, environ_base=base, **options
        )

    def person(self, user: str, **options: Any) -> Any:
        return self.ask("GET", "session", user, **options).get_json()["person"]

    def deeds(self) -> list[tuple[str, str, str]]:
        return [(deed.action, deed.subject, deed.address) for deed in self.accounts.audit_events(None, 10)]


@pytest.fixture
def ann(make_site: MakeSite) -> Proxied:
    site = Proxied(make_site)
    site.accounts.users.create(SHELL, "ann@example.org", "Ann", "member", None)
    return site


def test_the_proxys_word_counts(ann: Proxied) -> None:
    person = ann.person("Ann@Example.org")
    assert (person["email"], person["role"], person["session"]) == ("ann@example.org", "member", False)
    assert ann.ask("GET", "runs", "ann@example.org").status_code == 200
    assert ann.ask("GET", "users", "ann@example.org").status_code == 403
    assert ann.person("") is None
    assert ann.ask("GET", "runs").status_code == 401


def test_an_invitation_needs_an_address(ann: Proxied) -> None:
    """The code in the link would be of no use: the proxy's word makes the account."""
    ann.accounts.users.create(SHELL, "root@example.org", "Root", "admin", None)
    token = ann.ask("GET", "session", "root@example.org").get_json()["token"]
    for email, status in (("", 400), (" ", 400), ("kim@example.org", 201)):
        answer = ann.ask("POST", "invitations", "root@example.org", token=token, json={"email": email})
        assert answer.status_code == status, email


def test_anybody_elses_word_does_not(ann: Proxied) -> None:
    for peer in (STRANGER, "127.0.0.1", "::1", "11.0.0.1", ""):
        assert ann.person("ann@example.org", peer=peer) is None, peer
        assert ann.ask("GET", "runs", "ann@example.org", peer=peer).status_code == 401
    claimed = {"X-Forwarded-For": PROXY, "Forwarded": f"for={PROXY}", "X-Real-Ip": PROXY}
    assert ann.person("ann@example.org", peer=STRANGER, headers=claimed) is None


def test_the_header_is_ignored_unless_it_is_configured(make_site: MakeSite) -> None:
    site = Proxied(make_site, header="")
    site.accounts.users.create(SHELL, "ann@example.org", "Ann", "member", PASSWORD)
    assert site.person("ann@example.org") is None


def test_changes_need_the_token_of_the_page(ann: Proxied) -> None:
    body: dict[str, Any] = {"json": {"name": "vision"}}
    user = "ann@example.org"
    assert ann.ask("POST", "projects", user, **body).status_code == 401
    token = ann.ask("GET", "session", user).get_json()["token"]
    ann.accounts.users.create(SHELL, "bob@example.org", "", "member", None)
    others = ann.ask("GET", "session", "bob@example.org").get_json()["token"]
    assert len(token) == 64
    assert token != others
    assert ann.ask("POST", "projects", user, token=others, **body).status_code == 401
    foreign = {"Origin": "https://evil.example"}
    assert ann.ask("POST", "projects", user, token=token, headers=foreign, **body).status_code == 403
    assert ann.ask("POST", "projects", user, token=token, **body).status_code == 201


def test_behind_a_proxy_there_are_no_passwords(ann: Proxied) -> None:
    ann.accounts.users.create(SHELL, "old@example.org", "", "admin", PASSWORD)
    login = {"email": "old@example.org", "password": PASSWORD}
    for user in ("", "ann@example.org"):
        token = ann.ask("GET", "session", user).get_json()["token"]
        for method, path, body in (
            ("POST", "session", login),
            ("POST", "session/register", login),
            ("POST", "session/password", {"code": "vp_c_x", "password": PASSWORD}),
            ("POST", "account/password", {"old": PASSWORD, "new": PASSWORD}),
        ):
            status = ann.ask(method, path, user, token=token, json=body).status_code
            assert status == 403 or (status == 401 and not user and path == "account/password"), path


def test_a_cookie_of_before_means_nothing(ann: Proxied) -> None:
    user = ann.accounts.users.create(SHELL, "old@example.org", "", "admin", PASSWORD)
    cookie = ann.accounts.sessions.create(user.id, PROXY, "")
    assert ann.person("", headers={"Cookie": f"visualprof={cookie}"}) is None
    assert ann.person("ann@example.org", headers={"Cookie": f"visualprof={cookie}"})["email"] == "ann@example.org"


def test_commands_have_tokens_from_anywhere(ann: Proxied) -> None:
    user = "ann@example.org"
    page = ann.ask("GET", "session", user).get_json()["token"]
    new_token = ann.ask("POST", "account/tokens", user, token=page, json={"name": "ci"}).get_json()["new_token"]
    assert ann.ask("GET", "runs", peer=STRANGER, token=new_token).status_code == 200
    assert ann.person("root@example.org", peer=STRANGER, token=new_token)["email"] == user


@pytest.mark.parametrize(("registration", "role"), [("open", "member"), ("invitation", None), ("off", None)])
def test_a_new_user_of_the_proxy_gets_an_account(
    make_site: MakeSite, registration: Registration, role: str | None
) -> None:
    site = Proxied(make_site, registration)
    person = site.person("kim@example.org")
    assert (person and person["role"]) == role
    assert ("make account", "kim@example.org by the proxy", PROXY) in site.deeds() or role is None
    assert [user.email for user in site.accounts.users.list_all()] == (["kim@example.org"] if role else [])
    again = site.ask("GET", "session", "kim@example.org").get_json()
    assert (again["by_proxy"], again["person"] and again["person"]["role"]) == (True, role)
    if role is None:
        assert site.ask("GET", "runs", "kim@example.org").status_code == 401


def test_an_invited_address_gets_the_role_of_the_invitation_once(make_site: MakeSite) -> None:
    site = Proxied(make_site)
    site.accounts.users.invite(SHELL, "kim@example.org", "viewer")
    site.accounts.users.invite(SHELL, "", "admin")
    assert site.person("lee@example.org") is None
    assert site.person("kim@example.org")["role"] == "viewer"
    site.accounts.users.update(SHELL, site.accounts.users.list_all()[0].id, disabled=True)
    assert site.person("kim@example.org") is None


def test_an_invitation_has_no_effect_without_registration(make_site: MakeSite) -> None:
    site = Proxied(make_site, "off")
    site.accounts.users.invite(SHELL, "kim@example.org", "viewer")
    assert site.person("kim@example.org") is None


def test_log_ins_are_in_the_log_but_not_each_request(ann: Proxied) -> None:
    for _ in range(3):
        ann.person("ann@example.org", headers={"X-Forwarded-For": STRANGER})
    assert ann.deeds()[:2] == [
        ("log in", "ann@example.org by the proxy", STRANGER),
        ("create user", "ann@example.org as member", "shell"),
    ]


@pytest.mark.parametrize("name", ["ann", "ann.lee", "DOMAIN-1_ann"])
def test_a_proxy_may_know_names_instead_of_addresses(make_site: MakeSite, name: str) -> None:
    assert Proxied(make_site, "open").person(name)["email"] == name.lower()


def test_invalid_user_names_are_not_logged_in(make_site: MakeSite) -> None:
    site = Proxied(make_site, "open")
    for name in ("a b", "a,b", "ann@", "@x.y", "a@b", "a;b", "<x>", "(x)", 'a"b', "a\\b", "x" * 65, "é"):
        assert site.ask("GET", "runs", name).status_code == 400, name
        assert site.accounts.users.list_all() == []


def test_two_user_headers_are_not_logged_in(ann: Proxied) -> None:
    twice = [("X-Remote-User", "ann@example.org"), ("X-Remote-User", "ann@example.org")]
    answer = ann.site.app.test_client().get("/api/v1/runs", headers=twice, environ_base={"REMOTE_ADDR": PROXY})
    assert answer.status_code == 400


def test_a_real_server_takes_user_and_address_from_the_proxy(tmp_path: Path) -> None:
    """What waitress passes on: it would drop X-Forwarded-For, and takes no name with an underscore."""
    named = {"proxies": ("127.0.0.1/32",), "user_header": "X-Remote-User"}
    with Server([tmp_path], 0, server_settings(accounts=True, registration="open", **named)) as server:
        server.start()
        for name, user_name in (("X-Remote-User", "ann"), ("X_Remote_User", "bob")):
            headers = {name: user_name, "X-Forwarded-For": STRANGER}
            urllib.request.urlopen(urllib.request.Request(f"{server.url}api/v1/session", headers=headers)).close()
        accounts = Accounts(server.job_service.open().database)
        audit = [(deed.email, deed.action, deed.address) for deed in accounts.audit_events(None, 9)]
    assert audit == [("ann", "log in", STRANGER), ("ann", "make account", STRANGER)]


@pytest.mark.parametrize("options", [[], ["--accounts"], ["--trust-proxy", "10.0.0.0/8"]])
def test_a_header_needs_a_proxy_and_accounts(
    options: list[str], tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "--user-header", "X-Remote-User", *options]) == 2
    assert "--trust-proxy" in capsys.readouterr().err
