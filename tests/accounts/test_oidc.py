"""Logging in at an issuer of OpenID Connect: who is let in, and every answer that proves nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from issuers import CLIENT, SECRET, Provider, provider
from joserfc.jwk import ECKey, OctKey, RSAKey
from sites import MakeSite
from teams import PASSWORD, SHELL, Browser
from werkzeug.test import TestResponse

from visualprof.accounts import login_attempts
from visualprof.accounts.principal import Registration
from visualprof.accounts.service import Accounts
from visualprof.cli import main
from visualprof.server.job_service import JobService

BASE = "https://dash.example.org"
KIM = "kim@example.org"


class Site:
    """A server that knows an issuer."""

    def __init__(self, make_site: MakeSite, there: Provider, registration: Registration, **more: Any) -> None:
        self.there = there
        settings = {"oidc": there.url, "oidc_client": CLIENT, "oidc_secret": SECRET, "base_url": BASE, **more}
        self.site = make_site(accounts=True, registration=registration, **settings)
        self.accounts = Accounts(JobService(self.site.logdir.roots[0]).open().database, registration)

    def browser(self) -> Browser:
        return Browser(self.site.app.test_client())

    def begun(self, browser: Browser) -> str:
        answer = browser.ask("POST", "session/issuer", base_url=BASE)
        assert answer.status_code == 200, answer.get_json()
        return answer.get_json()["address"]

    def log_in(self, browser: Browser | None = None, /, **brought: str) -> TestResponse:
        """All of it. brought: what the browser brings back instead of what the issuer gave."""
        browser = browser or self.browser()
        back = {**self.there.visit(self.begun(browser)), **brought}
        answer = browser.ask("POST", "session/issued", json=back, base_url=BASE)
        browser.token = (answer.get_json() or {}).get("token", "")
        return answer

    def refusal(self, **brought: str) -> str:
        answer = self.log_in(None, **brought)
        assert answer.status_code == 401, answer.get_json()
        assert "__Host-visualprof=" not in str(answer.headers), "nobody is logged in"
        return answer.get_json()["error"]

    def roles(self) -> dict[str, str]:
        return {user.email: user.role for user in self.accounts.users.list_all()}


@pytest.fixture
def there() -> Generator[Provider]:
    with provider() as issuer:
        yield issuer


@pytest.fixture
def open_site(make_site: MakeSite, there: Provider) -> Site:
    return Site(make_site, there, "open")


def test_a_user_logs_in_and_out(open_site: Site, there: Provider) -> None:
    browser = open_site.browser()
    assert browser.ask("GET", "session", base_url=BASE).get_json()["issuer"] == "127.0.0.1"
    answer = open_site.log_in(browser)
    person = answer.get_json()["person"]
    assert (person["email"], person["name"], person["role"], person["session"]) == (KIM, "Kim", "member", True)
    cookies = answer.headers.getlist("Set-Cookie")
    assert any(c.startswith("__Host-visualprof=vp_w_") and "HttpOnly" in c and "Secure" in c for c in cookies)
    assert any(c.startswith("__Host-visualprof-log-in=;") for c in cookies), "what the log-in needed is taken back"
    assert browser.ask("GET", "runs", base_url=BASE).status_code == 200
    assert browser.ask("DELETE", "session", base_url=BASE).status_code == 200
    assert browser.ask("GET", "runs", base_url=BASE).status_code == 401
    actions = [(deed.action, deed.subject) for deed in open_site.accounts.audit_events(None, 10)][1:]
    assert actions == [
        ("log in", f"{KIM} by {there.url}"),
        ("first log-in by an issuer", f"{KIM} by {there.url}"),
        ("make account", f"{KIM} by {there.url}"),
    ]
    assert open_site.log_in().status_code == 200, "again, into the same account"
    assert open_site.roles() == {KIM: "member"}


def test_logging_out_also_ends_the_session_at_the_issuer(open_site: Site, there: Provider) -> None:
    browser = open_site.browser()
    open_site.log_in(browser)
    cookie = browser.client.get_cookie("__Host-visualprof-issued", "dash.example.org")
    assert cookie is not None
    assert (cookie.http_only, cookie.secure) == (True, True)
    leave = browser.ask("DELETE", "session", base_url=BASE).get_json()["leave"]
    assert there.leave(leave, f"{BASE}/")["sub"] == "42"
    assert browser.client.get_cookie("__Host-visualprof-issued", "dash.example.org") is None
    assert browser.ask("GET", "runs", base_url=BASE).status_code == 401


@pytest.mark.parametrize("why", ["password", "no endpoint", "down"])
def test_logging_out_ends_the_session_here_whatever_the_issuer_says(
    open_site: Site, there: Provider, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = open_site.browser()
    there.metadata = {"end_session_endpoint": None} if why == "no endpoint" else {}
    open_site.log_in(browser)
    if why == "password":  # in the same browser, by somebody else
        open_site.accounts.users.create(SHELL, "ann@example.org", "ann", "member", PASSWORD)
        theirs = {"email": "ann@example.org", "password": PASSWORD}
        browser.token = browser.ask("POST", "session", json=theirs, base_url=BASE).get_json()["token"]
    elif why == "down":
        there.fails = True
        later = time.monotonic() + 3600
        monkeypatch.setattr(time, "monotonic", lambda: later)
    answer = browser.ask("DELETE", "session", base_url=BASE)
    assert (answer.status_code, answer.get_json()["leave"]) == (200, "")
    assert browser.ask("GET", "runs", base_url=BASE).status_code == 401


def told(site: Site, form: dict[str, str]) -> tuple[int, str]:
    """Post a logout token of the issuer; return status and error."""
    answer = site.site.app.test_client().post("/api/v1/session/logged-out", data=form, base_url=BASE)
    return answer.status_code, (answer.get_json(silent=True) or {}).get("error", "")


def inside(browser: Browser) -> bool:
    return browser.ask("GET", "runs", base_url=BASE).status_code == 200


def test_the_issuer_ends_the_named_session(open_site: Site, there: Provider) -> None:
    laptop, phone, other = (open_site.browser() for _ in range(3))
    for browser, sid in ((laptop, "laptop"), (phone, "phone")):
        there.lies = {"sid": sid}
        open_site.log_in(browser)
    there.lies = {"sub": "43", "email": "lee@example.org", "sid": "lee's"}
    open_site.log_in(other)
    assert told(open_site, there.log_out(sid="laptop")) == (204, "")
    assert [inside(browser) for browser in (laptop, phone, other)] == [False, True, True]
    assert told(open_site, there.log_out(sid="lee's")) == (204, ""), "it is not of this person"
    assert inside(other)
    assert told(open_site, there.log_out(sid="lee's", sub=None)) == (204, ""), "the session alone says whose it is"
    assert [inside(browser) for browser in (phone, other)] == [True, False]
    assert told(open_site, there.log_out(sid="unknown")) == (204, ""), "it is over already"
    deeds = [deed for deed in open_site.accounts.audit_events(None, 20) if deed.action == "log out"]
    assert [(deed.email, deed.subject.partition(" by ")[2]) for deed in deeds] == [
        ("lee@example.org", there.url),
        (KIM, there.url),
    ]


def test_the_issuer_ends_all_sessions_that_began_there(open_site: Site, there: Provider) -> None:
    first, second, third = (open_site.browser() for _ in range(3))
    open_site.log_in(first)
    there.lies = {"sid": "x"}
    open_site.log_in(second)
    kim = next(user.id for user in open_site.accounts.users.list_all() if user.email == KIM)
    open_site.accounts.users.set_password(SHELL, kim, PASSWORD)  # which ends the sessions
    open_site.log_in(first)
    again = open_site.log_in(second)
    assert again.status_code == 200
    login = {"email": KIM, "password": PASSWORD}
    third.token = third.ask("POST", "session", json=login, base_url=BASE).get_json().get("token", "")
    form = there.log_out()
    assert told(open_site, form) == (204, "")
    assert [inside(browser) for browser in (first, second, third)] == [False, False, bool(third.token)]
    open_site.log_in(first)
    assert told(open_site, form) == (400, "logout_token: it was used before")
    assert inside(first), "what was sent once ends nothing that began later"


@pytest.mark.parametrize(
    ("lies", "what"),
    [
        ({"iss": "https://login.example.org"}, "it proves nothing: iss"),
        ({"aud": "another"}, "it proves nothing: aud"),
        ({"iat": None}, "it proves nothing: iat"),
        ({"exp": None}, "it proves nothing: exp"),
        ({"jti": None}, "it proves nothing: jti"),
        ({"after_s": -3600}, "it proves nothing: exp"),
        ({"after_s": 3600}, "it proves nothing: iat"),
        ({"exp": 2**60}, "it ends no session"),
        ({"events": None}, "it proves nothing: KeyError"),
        ({"events": {"http://schemas.openid.net/event/other": {}}}, "it ends no session"),
        ({"nonce": "x"}, "it ends no session"),
        ({"sub": None}, "it ends no session"),
        ({"sub": ["42"]}, "it proves nothing: sub"),
    ],
    ids=str,
)
def test_an_unproven_logout_token_ends_no_session(open_site: Site, there: Provider, lies: Any, what: str) -> None:
    browser = open_site.browser()
    open_site.log_in(browser)
    assert told(open_site, there.log_out(**lies)) == (400, f"logout_token: {what}")
    assert inside(browser)


def test_a_logout_token_signed_by_another_issuer_ends_no_session(open_site: Site, there: Provider) -> None:
    browser = open_site.browser()
    open_site.log_in(browser)
    there.signs_with = RSAKey.generate_key(2048, {"kid": "first"})
    assert told(open_site, there.log_out()) == (400, "logout_token: it proves nothing: BadSignatureError")
    there.signs_with, there.alg = OctKey.import_key(SECRET * 2), "HS256"
    assert told(open_site, there.log_out())[0] == 400, "a secret is no key of the issuer's alone"
    assert told(open_site, {"logout_token": "x"})[0] == told(open_site, {})[0] == 400
    for _ in range(login_attempts.MAX_PER_ADDRESS):
        told(open_site, {"logout_token": "x"})
    asked = len(there.asked)
    assert told(open_site, {"logout_token": "x"})[0] == 429
    assert len(there.asked) == asked, "strangers do not have the issuer asked for ever"
    assert inside(browser)


def test_logout_requests_of_the_issuer_do_not_count_as_attempts(open_site: Site, there: Provider) -> None:
    assert {told(open_site, there.log_out())[0] for _ in range(login_attempts.MAX_PER_ADDRESS + 2)} == {204}


def test_the_browser_is_redirected_with_the_parameters_of_a_log_in(open_site: Site) -> None:
    first, second = (parse_qs(urlsplit(open_site.begun(open_site.browser())).query) for _ in range(2))
    assert first["redirect_uri"] == [f"{BASE}/"]
    unlike = ("state", "nonce", "code_challenge")
    assert all(len(first[name][0]) >= 43 and first[name] != second[name] for name in unlike)
    assert len({first[name][0] for name in unlike}) == 3


def test_the_issuer_is_not_contacted_before_the_first_log_in(open_site: Site, there: Provider) -> None:
    open_site.browser().ask("GET", "session", base_url=BASE)
    assert there.asked == []
    open_site.log_in()
    open_site.log_in()
    assert [path.rpartition("/")[2] for path in there.asked] == [
        "openid-configuration",
        "token",
        "keys",
        "token",
        "keys",
    ]


def test_another_browser_or_state_is_refused(open_site: Site) -> None:
    assert "not begun in this browser" in open_site.refusal(state="0" * 64)
    own_browser = open_site.browser()
    back = open_site.there.visit(open_site.begun(own_browser))
    for other in (open_site.browser(), open_site.browser()):
        assert other.ask("POST", "session/issued", json=back, base_url=BASE).status_code == 401
        open_site.begun(other)  # with a cookie of another log-in
        assert other.ask("POST", "session/issued", json=back, base_url=BASE).status_code == 401
    foreign = {"Origin": "https://evil.example"}
    assert own_browser.ask("POST", "session/issued", json=back, base_url=BASE, headers=foreign).status_code == 403
    assert own_browser.ask("POST", "session/issued", json=back, base_url=BASE).status_code == 200


def test_a_code_works_once_and_with_its_verifier(open_site: Site) -> None:
    browser = open_site.browser()
    back = open_site.there.visit(open_site.begun(browser))
    cookie = browser.client.get_cookie("__Host-visualprof-log-in", "dash.example.org")
    assert cookie is not None
    assert browser.ask("POST", "session/issued", json=back, base_url=BASE).status_code == 200
    browser.client.delete_cookie("__Host-visualprof", domain="dash.example.org")
    again = browser.ask("POST", "session/issued", json=back, base_url=BASE)
    assert "not begun in this browser" in again.get_json()["error"], "the cookie is gone"
    browser.client.set_cookie(cookie.key, cookie.value, domain="dash.example.org", secure=True)
    again = browser.ask("POST", "session/issued", json=back, base_url=BASE)
    assert (again.status_code, again.get_json()["error"]) == (401, "the issuer refused: invalid_grant")
    other = open_site.there.visit(open_site.begun(open_site.browser()))
    assert open_site.refusal(code=other["code"]) == "the issuer refused: invalid_grant"


@pytest.mark.parametrize(
    ("lies", "said"),
    [
        ({"nonce": "another"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"iss": "https://evil.example"}, "iss"),
        ({"aud": "another-client"}, "aud"),
        ({"aud": [CLIENT, "another-client"]}, "azp"),
        ({"aud": [CLIENT, "another-client"], "azp": "another-client"}, "azp"),
        ({"sub": None}, "sub"),
        ({"exp": None}, "exp"),
        ({"at_hash": "x" * 22}, "at_hash"),
    ],
)
def test_a_token_of_another_log_in_proves_nothing(open_site: Site, there: Provider, lies: Any, said: str) -> None:
    there.lies = lies
    assert open_site.refusal() == f"the issuer's answer proves nothing: {said}"
    assert open_site.roles() == {}


@pytest.mark.parametrize("lies", [{"exp": 100}, {"exp": -70}, {"iat": 70}, {"nbf": 70}])
def test_the_clocks_differ(open_site: Site, there: Provider, lies: dict[str, int]) -> None:
    """100: a time long ago; others from now on, a minute being allowed."""
    now = int(time.time())
    there.lies = {name: value if value == 100 else now + value for name, value in lies.items()}
    assert open_site.refusal() == "the issuer's answer is not of this time, or the clocks differ"
    there.lies = {name: now + (-50 if value < 0 else 50) for name, value in lies.items() if value != 100}
    assert open_site.log_in().status_code == 200


def test_a_wrong_signature_proves_nothing(open_site: Site, there: Provider) -> None:
    there.signs_with = RSAKey.generate_key(2048, {"kid": "first"})
    assert open_site.refusal() == "the issuer's answer proves nothing: BadSignatureError"
    there.signs_with, there.alg = OctKey.import_key(SECRET * 2), "HS256"
    assert "UnsupportedAlgorithm" in open_site.refusal(), "a secret that others may have is no signature"


def test_an_unsigned_token_proves_nothing(open_site: Site, there: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    signed = Provider.tokens

    def unsigned(self: Provider, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        status, answer = signed(self, form, authorization)
        payload = answer["id_token"].split(".")[1]
        return status, {**answer, "id_token": f"eyJhbGciOiJub25lIn0.{payload}."}  # {"alg":"none"}

    monkeypatch.setattr(Provider, "tokens", unsigned)
    assert "proves nothing" in open_site.refusal()


def test_the_issuer_changes_its_keys(open_site: Site, there: Provider) -> None:
    assert open_site.log_in().status_code == 200
    there.key = RSAKey.generate_key(2048, {"kid": "second"})
    assert open_site.log_in().status_code == 200
    there.key, there.alg = ECKey.generate_key("P-256", {"kid": "third"}), "ES256"
    assert open_site.log_in().status_code == 200


@pytest.mark.parametrize("lies", [{"email_verified": False}, {"email_verified": None}, {"email_verified": "true"}])
def test_an_unverified_address_is_rejected(open_site: Site, there: Provider, lies: Any) -> None:
    open_site.accounts.users.create(SHELL, KIM, "", "admin", PASSWORD)
    there.lies = lies
    assert open_site.refusal() == f"the issuer has not verified the address {KIM}"
    there.lies = {"email": None}
    assert open_site.refusal() == "the issuer gives no e-mail address"


def test_missing_claims_are_requested_from_the_issuer(open_site: Site, there: Provider) -> None:
    there.lies = {"email": None, "email_verified": None}
    there.in_userinfo = {"sub": "somebody else", "email": KIM, "email_verified": True}
    assert open_site.refusal() == "the issuer gives no e-mail address"
    there.in_userinfo["sub"] = "42"
    assert open_site.log_in().status_code == 200


@pytest.mark.parametrize(("registration", "invited"), [("invitation", True), ("invitation", False), ("off", True)])
def test_registration_decides_whether_a_new_user_may_log_in(
    make_site: MakeSite, there: Provider, registration: Registration, invited: bool
) -> None:
    site = Site(make_site, there, registration)
    site.accounts.users.invite(SHELL, KIM if invited else "", "viewer")
    if registration == "invitation" and invited:
        assert site.log_in().get_json()["person"]["role"] == "viewer"
    else:
        assert site.refusal() == f"{KIM} has no invitation"
        assert site.accounts.audit_events(None, 1)[0].action == "log-in refused"
        assert site.roles() == {}


def test_with_an_issuer_nobody_registers_with_a_password(open_site: Site) -> None:
    """Otherwise a user could claim the address of someone who logs in later."""
    code = open_site.accounts.users.invite(SHELL, "", "member")
    for more in ({}, {"code": code}):
        login = {"email": KIM, "password": PASSWORD, **more}
        assert open_site.browser().ask("POST", "session/register", json=login, base_url=BASE).status_code == 403


def test_an_account_of_before_becomes_that_of_the_address(open_site: Site) -> None:
    """Whoever made it may only have claimed the address: nothing of theirs opens it any more."""
    user = open_site.accounts.users.create(SHELL, KIM, "", "member", PASSWORD)
    before = open_site.browser()
    assert before.ask("POST", "session", json={"email": KIM, "password": PASSWORD}, base_url=BASE).status_code == 200
    browser = open_site.browser()
    assert open_site.log_in(browser).get_json()["person"]["id"] == user.id
    assert before.ask("GET", "runs", base_url=BASE).status_code == 401
    assert before.log_in(KIM).status_code == 401
    assert open_site.log_in().status_code == 200
    assert browser.ask("GET", "runs", base_url=BASE).status_code == 200, "a second log-in ends no session"
    open_site.accounts.users.set_password(SHELL, user.id, PASSWORD)
    login = {"email": KIM, "password": PASSWORD}
    assert open_site.browser().ask("POST", "session", json=login, base_url=BASE).status_code == 200


def test_a_reassigned_address_does_not_open_the_old_account(open_site: Site, there: Provider) -> None:
    ann = open_site.log_in().get_json()["person"]["id"]
    there.person["email"] = "kim.lee@example.org"
    assert open_site.log_in().get_json()["person"]["id"] == ann, "the account follows the person"
    there.person |= {"sub": "43", "email": KIM}
    assert open_site.refusal() == f"at the issuer, the address {KIM} belonged to another user"
    open_site.accounts.users.update(SHELL, ann, role="viewer", disabled=False)  # as `visualprof admin grant` does
    assert open_site.refusal() == f"at the issuer, the address {KIM} belonged to another user"
    open_site.accounts.users.update(SHELL, ann, disabled=True)
    assert open_site.refusal() == "this account is closed"
    open_site.accounts.users.update(SHELL, ann, disabled=False)
    assert open_site.log_in().get_json()["person"]["id"] == ann, "an administrator has let them in again"


def test_a_group_of_the_issuer_makes_administrators(make_site: MakeSite, there: Provider) -> None:
    site = Site(make_site, there, "open", oidc_admin_group="profilers")
    site.accounts.users.create(SHELL, "root@example.org", "", "admin", PASSWORD)
    for groups, role in (
        (None, "member"),
        (["profilers"], "admin"),
        (["profilers2"], "member"),
        ("profilers", "member"),
    ):
        there.lies = {"groups": groups}
        assert site.log_in().get_json()["person"]["role"] == role, groups
    there.lies, there.in_userinfo = {}, {"sub": "42", "groups": ["profilers"]}
    assert site.log_in().get_json()["person"]["role"] == "admin"


def test_the_last_administrator_keeps_the_role(make_site: MakeSite, there: Provider) -> None:
    site = Site(make_site, there, "open", oidc_admin_group="profilers")
    site.accounts.users.create(SHELL, KIM, "", "admin", PASSWORD)
    assert site.log_in().get_json()["person"]["role"] == "admin"


def test_without_a_group_roles_are_managed_locally(open_site: Site, there: Provider) -> None:
    open_site.accounts.users.create(SHELL, KIM, "", "viewer", PASSWORD)
    there.lies = {"groups": ["admin"], "role": "admin"}
    assert open_site.log_in().get_json()["person"]["role"] == "viewer"


def test_the_issuer_refuses(open_site: Site) -> None:
    assert open_site.refusal(code="", error="access_denied") == "the issuer refused: access_denied"
    assert open_site.refusal(code="", error="<b>call 555") == "the issuer refused: it does not say why"


def test_the_issuer_is_down(open_site: Site, there: Provider) -> None:
    there.fails = True
    answer = open_site.browser().ask("POST", "session/issuer", base_url=BASE)
    assert (answer.status_code, answer.get_json()["error"]) == (502, f"{there.url} answers with 500")
    there.fails = False
    browser = open_site.browser()
    back = there.visit(open_site.begun(browser))
    there.fails = True
    assert browser.ask("POST", "session/issued", json=back, base_url=BASE).status_code == 502
    there.fails = False
    assert browser.ask("POST", "session/issued", json=back, base_url=BASE).status_code == 200, "the code was not used"


def test_an_unreachable_issuer_is_an_error(make_site: MakeSite, there: Provider) -> None:
    site = Site(make_site, there, "open", oidc="http://127.0.0.1:9/")
    answer = site.browser().ask("POST", "session/issuer", base_url=BASE)
    assert answer.status_code == 502
    assert "does not answer as it should" in answer.get_json()["error"]


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"issuer": "https://evil.example"}, "calls itself 'https://evil.example'"),
        ({"token_endpoint": "ftp://127.0.0.1/"}, "names no token_endpoint with TLS"),
        ({"jwks_uri": None}, "names no jwks_uri with TLS"),
    ],
)
def test_an_invalid_issuer_is_an_error(open_site: Site, there: Provider, metadata: dict[str, Any], said: str) -> None:
    there.metadata = metadata
    browser = open_site.browser()
    answer = browser.ask("POST", "session/issuer", base_url=BASE)
    if answer.status_code == 200:
        back = there.visit(answer.get_json()["address"])
        answer = browser.ask("POST", "session/issued", json=back, base_url=BASE)
    assert answer.status_code == 502
    assert said in answer.get_json()["error"]


def test_a_secret_goes_nowhere_else(open_site: Site, there: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Provider, "tokens", lambda *_: (307, {}))  # to the keys, as it happens
    answer = open_site.log_in()
    assert (answer.status_code, answer.get_json()["error"]) == (502, f"{there.url} answers with 307")
    assert there.asked[-1].endswith("/token")


def test_a_secret_may_be_wanted_in_the_form(open_site: Site, there: Provider) -> None:
    there.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    assert open_site.log_in().status_code == 200


def test_a_wrong_secret_is_the_administrators_matter(make_site: MakeSite, there: Provider) -> None:
    site = Site(make_site, there, "open", oidc_secret="wrong")
    answer = site.log_in()
    assert (answer.status_code, answer.get_json()["error"]) == (502, f"{there.url} answers with 401")


def test_without_an_issuer_the_routes_do_not_exist(make_site: MakeSite) -> None:
    app = make_site(accounts=True).app.test_client()
    assert app.post("/api/v1/session/issuer").status_code == 404
    assert app.post("/api/v1/session/issued", json={"state": ""}).status_code == 404


OIDC = ["--accounts", "--base-url", BASE, "--oidc-client", "x"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--oidc", "https://login.example.org"], "--oidc needs accounts"),
        ([*OIDC[:3], "--oidc", "https://login.example.org"], "--oidc needs accounts"),
        ([*OIDC, "--oidc", "http://login.example.org"], "an issuer is like"),
        ([*OIDC, "--oidc", "login.example.org"], "an issuer is like"),
        (
            [*OIDC, "--oidc", "https://login.example.org", "--user-header", "X", "--trust-proxy", "10.0.0.0/8"],
            "Leave one of them out",
        ),
    ],
)
def test_options_that_do_not_go_together(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):  # of the parser
        assert main([str(tmp_path), *options]) == 2
    assert said in capsys.readouterr().err
