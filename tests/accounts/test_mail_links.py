"""Links by e-mail for users who are not logged in, and limits on log-in attempts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator
from email.message import EmailMessage
from typing import Any

import pytest
from receivers import Mailbox, mail_server
from sites import MakeSite, Site
from teams import PASSWORD, SHELL, Browser

from visualprof.accounts import login_attempts
from visualprof.accounts.service import Accounts
from visualprof.server.job_service import JobService

BASE = "http://dash.example.org"
KIM = "kim@example.org"


@pytest.fixture
def box() -> Generator[Mailbox]:
    with mail_server() as mails:
        yield mails


class Server:
    def __init__(self, site: Site, box: Mailbox) -> None:
        self.site, self.box = site, box
        self.accounts = Accounts(JobService(site.logdir.roots[0]).open().database, "open")

    def ask(self, path: str, peer: str = "127.0.0.1", **said: Any) -> Any:
        browser = Browser(self.site.app.test_client())
        return browser.ask("POST", path, json=said, environ_base={"REMOTE_ADDR": peer}, base_url=BASE)

    def wish(self, email: str, wish: str, **more: Any) -> None:
        """Asks for a link, and says nothing of who has an account."""
        answer = self.ask("session/link", email=email, wish=wish, **more)
        assert (answer.status_code, answer.get_json()["person"]) == (200, None)

    def got(self, count: int) -> EmailMessage:
        """The latest of so many letters."""
        for _ in range(1000):
            if len(self.box.got) >= count:
                break
            time.sleep(0.02)
        assert len(self.box.got) == count
        return self.box.got[-1]

    def code(self, count: int) -> str:
        match = re.search(r"=(vp_c_\S+)&email=", self.got(count).get_content())
        assert match
        return match[1]


Start = Callable[..., Server]


@pytest.fixture
def start(make_site: MakeSite, box: Mailbox) -> Start:
    def made(**more: Any) -> Server:
        mail = {"smtp": f"smtp://127.0.0.1:{box.port}", "mail_from": "robot@example.org", "base_url": BASE}
        return Server(make_site(accounts=True, **{"registration": "open", **mail, **more}), box)

    return made


def test_an_address_is_confirmed_before_there_is_an_account(start: Start) -> None:
    server = start()
    refused = server.ask("session/register", email=KIM, password=PASSWORD)
    assert (refused.status_code, refused.get_json()["error"]) == (403, "the address is to be confirmed")
    server.wish(" Kim@Example.org ", "confirm", language="zh")
    letter = server.got(1)
    assert (letter["To"], letter["Subject"]) == (KIM, "[visualprof] 注册账户")
    assert f"{BASE}/#invitation=vp_c_" in letter.get_content()
    code = server.code(1)
    other = server.ask("session/register", email="lee@example.org", password=PASSWORD, code=code)
    assert other.get_json()["error"] == "no account can be created with this address and code"
    assert server.accounts.users.list_all() == []
    answer = server.ask("session/register", email=KIM, password=PASSWORD, code=code)
    assert (answer.status_code, answer.get_json()["person"]["role"]) == (200, "member")
    again = server.ask("session/register", email=KIM, password=PASSWORD, code=code)
    assert (again.status_code, again.get_json()["error"][:4]) == (400, "code")


def test_an_existing_account_is_revealed_only_by_mail(start: Start) -> None:
    server = start()
    server.accounts.users.create(SHELL, KIM, "", "member", PASSWORD)
    server.wish(KIM, "confirm")
    letter = server.got(1)
    assert letter["Subject"] == "[visualprof] You have an account"
    assert "vp_c_" not in letter.get_content()


def test_a_forgotten_password_is_replaced(start: Start) -> None:
    server = start(registration="invitation")
    user = server.accounts.users.create(SHELL, KIM, "", "member", PASSWORD)
    server.accounts.sessions.create(user.id, "", "")
    server.wish(KIM, "reset")
    code = server.code(1)
    assert server.ask("session/register", email="x@example.org", password=PASSWORD, code=code).status_code == 400
    assert server.ask("session/password", code=code, password="another four words").status_code == 200
    assert server.accounts.sessions.for_user(user.id) == []
    assert server.ask("session", email=KIM, password="another four words").status_code == 200


def test_only_the_address_owner_gets_a_link(start: Start) -> None:
    """Without an account, disabled, or logged in by others: there is nothing to reset. One in two minutes is enough."""
    server = start()
    gone = server.accounts.users.create(SHELL, "gone@example.org", "", "member", PASSWORD)
    server.accounts.users.update(SHELL, gone.id, disabled=True)
    server.accounts.users.create(SHELL, "issued@example.org", "", "member", None)
    for email in ("nobody@example.org", "gone@example.org", "issued@example.org"):
        server.wish(email, "reset")
    for _ in range(3):
        server.wish(KIM, "confirm")
    server.wish("last@example.org", "confirm")
    server.got(2)
    assert {letter["To"] for letter in server.box.got} == {KIM, "last@example.org"}


@pytest.mark.parametrize(
    ("settings", "wish"),
    [
        ({"registration": "invitation"}, "confirm"),
        ({"smtp": ""}, "confirm"),
        ({"base_url": ""}, "reset"),  # the asker would choose where the link leads
        ({"oidc": "http://127.0.0.1:9", "oidc_client": "x"}, "confirm"),
    ],
)
def test_a_server_without_mail_rejects_link_requests(start: Start, settings: dict[str, Any], wish: str) -> None:
    server = start(allowed_hosts=("dash.example.org",), **settings)
    assert server.ask("session/link", email=KIM, wish=wish).status_code == 403


def test_without_a_mail_server_users_register_directly(start: Start) -> None:
    assert start(smtp="").ask("session/register", email=KIM, password=PASSWORD).status_code == 200


def test_a_mail_server_that_refuses_is_in_the_log(start: Start) -> None:
    server = start()
    server.box.refuses = True
    server.wish(KIM, "confirm")
    deeds: list[tuple[str, str]] = []
    for _ in range(1000):
        deeds = [(deed.action, deed.subject) for deed in server.accounts.audit_events(None, 9)]
        if len(deeds) == 2:
            break
        time.sleep(0.02)
    assert deeds[1] == ("send a link", f"{KIM}: confirm")
    assert deeds[0][0] == "letter not sent"
    assert deeds[0][1].startswith(f"{KIM}: 127.0.0.1: ")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("session", {"email": "{}@example.org", "password": "not this one"}),
        ("session/register", {"email": "{}@example.org", "password": "x"}),
        ("session/password", {"code": "vp_c_{}", "password": "not this one at all"}),
        ("session/link", {"email": "{}@example.org", "wish": "reset"}),
    ],
)
def test_attempts_are_limited_per_client_address(
    start: Start, path: str, said: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_attempts, "MAX_PER_ADDRESS", 4)
    server = start(smtp="") if path == "session/register" else start()

    def tries(peer: str, number: int) -> int:
        return server.ask(
            path, peer, **{key: text.replace("{}", f"a{number}") for key, text in said.items()}
        ).status_code

    assert 429 not in [tries("192.0.2.1", number) for number in range(4)]
    assert tries("192.0.2.1", 5) == 429
    assert tries("192.0.2.2", 6) != 429, "others are elsewhere"


def test_successful_attempts_do_not_count(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """An office has one address."""
    monkeypatch.setattr(login_attempts, "MAX_PER_ADDRESS", 2)
    server = start()
    server.accounts.users.create(SHELL, KIM, "", "member", PASSWORD)
    assert [server.ask("session", email=KIM, password=PASSWORD).status_code for _ in range(4)] == [200] * 4
