"""People of a team: an invitation, logging in and out, sharing a run; the laptop's page shows nothing of it."""

from __future__ import annotations

import io
import itertools
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.accounts.issuers import CLIENT, SECRET, provider
from tests.accounts.receivers import mail_server
from tests.conftest import SAMPLES
from tests.e2e.live import Dashboard, Page, Visits, expect
from tests.e2e.locators import page_link
from tests.e2e.test_accessibility import AXE, violations, violations_in_both_themes, violations_now
from tests.remote.queue_sites import FakeAgent, result
from visualprof.cli import main

PASSWORD = "four words are enough"
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Dashboard]:
    """One server for all; whatever a test says of somebody it says of its own administrator."""
    folder = tmp_path_factory.mktemp("team") / "runs"
    for run in ("onnxruntime-cpu", "paddle-cpu"):
        shutil.copytree(SAMPLES / run, folder / run)
    with Dashboard(folder, cache, "--accounts") as dashboard:
        yield dashboard


@pytest.fixture
def root(team: Dashboard, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new administrator, who is called root."""
    email = f"root@n{next(_NUMBERS)}.example.org"
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSWORD))
    assert main(["admin", "--logdir", str(team.folder), "create-user", email, "--role", "admin"]) == 0
    return email


def log_in(page: Page, email: str) -> None:
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()


def test_a_team_from_the_invitation_to_a_shared_run(team: Dashboard, root: str, visit: Visits) -> None:
    visit.tolerate("status of 40[14]")
    admin = visit(team, "people", token="")
    admin.get_by_label("E-mail address").fill(root)
    admin.get_by_label("Password").fill("not this one at all")
    admin.get_by_role("button", name="Log in").click()
    expect(admin.get_by_role("alert")).to_contain_text("wrong")
    log_in(admin, root)
    expect(admin.get_by_role("heading", name="All users")).to_be_visible()
    admin.get_by_label("E-mail address (empty").fill("ann@example.org")
    admin.get_by_role("button", name="Create link").click()
    link = admin.locator(".command-line:not(.message)").inner_text().removesuffix("Copy")

    ann = visit(team, at=link, token="")
    ann.get_by_label("E-mail address").fill("ann")
    expect(ann.get_by_text("Enter a valid e-mail address")).to_be_visible()
    ann.get_by_label("E-mail address").fill("ann@example.org")
    ann.get_by_label("Name").fill("Ann")
    ann.get_by_label("New password").fill(PASSWORD)
    ann.get_by_role("button", name="Create account").click()
    expect(ann.get_by_role("button", name="Account of Ann")).to_be_visible()
    assert "invitation" not in ann.url
    expect(ann.locator("main")).to_contain_text("Step time", ignore_case=True)

    admin.goto(f"{team.url}#/overview?run=paddle-cpu")
    admin.get_by_role("button", name="Share", exact=True).click()
    admin.get_by_label("Owner and administrators").check()
    admin.get_by_role("button", name="Save", exact=True).click()
    ann.goto(f"{team.url}#/overview?run=paddle-cpu")
    expect(ann.locator("main").get_by_role("alert")).to_contain_text("paddle-cpu")

    ann.get_by_role("button", name="Account of Ann").click()
    ann.get_by_role("button", name="Log out").click()
    expect(ann.get_by_role("heading", name="Log in")).to_be_visible()
    assert "paddle-cpu" in admin.request.get(f"{team.url}api/v1/runs").text()


@pytest.mark.skipif(not AXE.exists(), reason="the page's packages are not installed: make test")
@pytest.mark.parametrize("page", ["account", "people", "agents"])
def test_the_account_page_is_accessible(team: Dashboard, root: str, visit: Visits, page: str) -> None:
    visit.tolerate("status of 401")
    tab = visit(team, page, token="")
    log_in(tab, root)
    expect(tab.get_by_role("button", name="Account of root")).to_be_visible()
    assert violations_in_both_themes(tab) == []


def test_an_administrator_sets_the_quota_of_a_user(team: Dashboard, root: str, visit: Visits) -> None:
    visit.tolerate("status of 401")
    admin = visit(team, "people", token="")
    log_in(admin, root)
    admin.get_by_role("button", name=f"Change the quota of {root}").click()
    admin.get_by_role("spinbutton", name="Uploads, GB").fill("1.5")
    admin.get_by_role("button", name="Save", exact=True).click()
    expect(admin.get_by_text("0 / 1.5")).to_be_visible()
    admin.goto(f"{team.url}#/account")
    expect(admin.locator("main")).to_contain_text("0 / 1.5")


def test_an_administrator_sets_retention_rules(team: Dashboard, root: str, visit: Visits) -> None:
    visit.tolerate("status of 401")
    page = visit(team, "people", token="")
    log_in(page, root)
    expect(page.get_by_role("heading", name="This server")).to_be_visible()
    page.get_by_role("button", name="Change: Finished jobs with their results").click()
    page.get_by_role("spinbutton", name="Days: Finished jobs with their results").fill("90")
    expect(page.get_by_text("would delete 0 now")).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("row", name="Finished jobs with their results 90 days")).to_be_visible()


def test_a_report_without_a_run_is_shared_like_a_run(team: Dashboard, root: str, visit: Visits) -> None:
    visit.tolerate("status of 401")
    for name, data in result("other", "other-0").items():
        (team.folder / "measured").mkdir(exist_ok=True)
        (team.folder / "measured" / name).write_bytes(data)
    page = signed_in(visit, team, root, "evaluation?reports=measured")
    page.get_by_role("button", name="Share", exact=True).click()
    page.get_by_label("Owner and administrators").check()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("radio", name="Owner and administrators")).to_be_hidden()
    access = page.request.get(f"{team.url}api/v1/runs/access?run=measured").json()
    assert (access["visibility"], access["job"], access["removed_ns"]) == ("private", None, None)


def test_a_local_server_shows_no_accounts(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview")
    page.locator("h1").first.wait_for()
    expect(page.locator(".selectors").get_by_role("button", name="Report")).to_be_visible()
    expect(page.locator(".selectors").get_by_role("button", name="Share")).to_have_count(0)


def signed_in(visit: Visits, team: Dashboard, root: str, page: str, **how: Any) -> Page:
    """A page of the administrator's, in any language."""
    tab = visit(team, page, token="", **how)
    login = {"email": root, "password": PASSWORD}
    tab.request.post(f"{team.url}api/v1/session", data=login, headers={"Origin": team.url.rstrip("/")})
    tab.reload()
    return tab


def test_a_user_chooses_notification_channels(team: Dashboard, root: str, visit: Visits) -> None:
    visit.tolerate("status of 40[01]")
    page = signed_in(visit, team, root, "account")
    page.get_by_label("By webhook").fill("http://example.org:22/")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("its port is that of another service")
    page.get_by_label("By webhook").fill("http://127.0.0.1:9999/hook")
    page.get_by_label("lost machines").uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".command-line")).to_contain_text("vp_h_")
    page.get_by_role("button", name="Send test").click()
    expect(page.get_by_text("A test is on its way")).to_be_visible()
    page.reload()
    expect(page.get_by_label("lost machines")).not_to_be_checked()
    bell = page.get_by_role("button", name="Notifications: 1 unread")
    bell.click()
    expect(page.get_by_role("link", name=re.compile("^Unread: ?Test notification: delivery works$"))).to_be_visible()
    page.get_by_role("button", name="Mark all as read").click()
    expect(page.get_by_role("button", name="Notifications: 0 unread")).to_be_visible()
    for _ in range(160):  # the server sends what is due every five seconds
        if "no public address" in page.request.get(f"{team.url}api/v1/account/contact").text():
            break
        page.wait_for_timeout(250)
    page.reload()
    expect(page.get_by_text("127.0.0.1 is no public address")).to_be_visible()


@pytest.mark.long
@pytest.mark.skipif(not AXE.exists(), reason="the page's packages are not installed: make test")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_notifications_are_accessible(team: Dashboard, root: str, visit: Visits, language: str, theme: str) -> None:
    visit.tolerate("status of 401")
    for width in (1280, 1920):
        tab = signed_in(visit, team, root, "account", theme=theme, language=language, size=(width, 860))
        ours = {"Origin": team.url.rstrip("/"), "X-Visualprof-Token": token_of(tab, team)}
        tab.request.post(f"{team.url}api/v1/account/contact/trial", headers=ours)
        tab.reload()
        tab.locator(".bell").click()
        expect(tab.locator(".popover li").first).to_be_visible()
        assert violations(tab) == []
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def token_of(page: Page, team: Dashboard) -> str:
    return page.request.get(f"{team.url}api/v1/session").json()["token"]


def test_a_proxy_logs_people_in(tmp_path: Path, serve: Callable[..., Dashboard], visit: Visits) -> None:
    visit.tolerate("status of 40[01]")
    shutil.copytree(SAMPLES / "paddle-cpu", tmp_path / "runs" / "paddle-cpu")
    named = ["--user-header", "X-Remote-User", "--trust-proxy", "127.0.0.1/32"]
    server = serve(tmp_path / "runs", "--accounts", *named, "--registration", "open")
    page = visit(server, "account", token="", fresh=True)
    expect(page.get_by_text("The proxy authenticated you")).to_be_visible()
    page.set_extra_http_headers({"X-Remote-User": "ann"})
    page.reload()
    page.get_by_role("button", name="Account of ann").click()
    expect(page.get_by_role("button", name="Log out")).to_have_count(0)
    expect(page.get_by_label("Old password")).to_have_count(0)
    page.keyboard.press("Escape")
    page.get_by_label("New project name").fill("vision")
    page.get_by_role("button", name="Create project").click()
    expect(page.get_by_role("heading", name="vision")).to_be_visible()


@pytest.fixture
def at_home(tmp_path: Path, serve: Callable[..., Dashboard]) -> Callable[..., Dashboard]:
    """A server with accounts that knows by which address browsers come."""

    def start(*options: str) -> Dashboard:
        shutil.copytree(SAMPLES / "paddle-cpu", tmp_path / "runs" / "paddle-cpu")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        named = ["--port", str(port), "--base-url", f"http://127.0.0.1:{port}", "--registration", "open"]
        return serve(tmp_path / "runs", "--accounts", *named, *options)

    return start


def test_an_issuer_logs_people_in(
    at_home: Callable[..., Dashboard], visit: Visits, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit.tolerate("status of (401|502)")
    monkeypatch.setenv("VISUALPROF_OIDC_SECRET", SECRET)
    with provider() as issuer:
        server = at_home("--oidc", issuer.url, "--oidc-client", CLIENT)
        page = visit(server, "operator", token="", run="paddle-cpu", sort="calls")
        visit.tolerate(f"asked for {issuer.url}/")
        button = page.get_by_role("button", name="Log in with 127.0.0.1")
        expect(button).to_be_focused()
        expect(page.get_by_role("button", name="Create account")).to_have_count(0)
        issuer.fails = True
        button.click()
        expect(page.get_by_role("alert")).to_contain_text("answers with 500")
        issuer.fails, issuer.person["email_verified"] = False, False
        button.click()
        expect(page.get_by_role("alert")).to_contain_text("has not verified the address kim@example.org")
        issuer.person["email_verified"] = True
        button.click()
        expect(page.get_by_role("button", name="Account of Kim")).to_be_visible()
        assert page.url.startswith(f"{server.url}#/operator?"), "where it was before, and nothing of the issuer's"
        assert "sort=calls" in page.url
        page.goto(f"{server.url}?next=https://evil.example/&state=x&code=y#/account")
        page.get_by_role("button", name="Account of Kim").click()
        page.get_by_role("button", name="Log out").click()
        expect(button).to_be_visible()
        assert page.url.startswith(server.url)
        assert [claims["email"] for claims in issuer.left] == ["kim@example.org"]


def test_links_by_mail_make_an_account_and_a_new_password(at_home: Callable[..., Dashboard], visit: Visits) -> None:
    visit.tolerate("status of 40[01]")
    with mail_server() as box:
        server = at_home("--smtp", f"smtp://127.0.0.1:{box.port}", "--mail-from", "robot@example.org")

        def mailed(count: int) -> str:
            """The link of the latest letter."""
            for _ in range(100):
                if len(box.got) == count:
                    match = re.search(r"http://\S+", box.got[-1].get_content())
                    assert match
                    return match[0]
                time.sleep(0.1)
            raise AssertionError(box.said)

        page = visit(server, "account", token="")
        page.get_by_role("button", name="Create account").click()
        expect(page.get_by_label("E-mail address")).to_be_focused()
        page.keyboard.type("kim@example.org")
        page.keyboard.press("Enter")
        expect(page.get_by_text("on its way")).to_be_visible()
        page = visit(server, at=mailed(1), token="")
        expect(page.get_by_label("E-mail address")).to_have_value("kim@example.org")
        page.get_by_label("New password").fill("kim@example.org")
        expect(page.get_by_text("Too easy to guess")).to_be_visible()
        expect(page.get_by_role("button", name="Create account")).to_be_disabled()
        page.get_by_label("New password").fill(PASSWORD)
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_label("New password")).to_have_attribute("type", "text")
        page.get_by_role("button", name="Create account").click()
        expect(page.get_by_role("button", name="Account of kim")).to_be_visible()

        page = visit(server, "account", token="")
        page.get_by_role("button", name="Forgot your password?").click()
        page.get_by_label("E-mail address").fill("kim@example.org")
        page.get_by_role("button", name="Send link").click()
        expect(page.get_by_text("on its way")).to_be_visible()
        page = visit(server, "account", at=mailed(2), token="")
        page.get_by_label("New password", exact=True).fill("another four words here")
        page.get_by_role("button", name="Set a new password").click()
        expect(page.get_by_text("The new password is set")).to_be_visible()
        page.get_by_label("Password", exact=True).fill("another four words here")
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Account of kim")).to_be_visible()


@pytest.mark.skipif(not AXE.exists(), reason="the page's packages are not installed: make test")
def test_a_link_shows_one_run_without_an_account(team: Dashboard, root: str, visit: Visits) -> None:
    visit.tolerate("status of 401")
    admin = visit(team, "overview", token="")
    log_in(admin, root)
    expect(admin.get_by_role("button", name="Account of root")).to_be_visible()
    admin.goto(f"{team.url}#/overview?run=paddle-cpu")
    admin.get_by_role("button", name="Share", exact=True).click()
    admin.get_by_label("Valid for").select_option("1 hour")
    admin.get_by_role("button", name="Create link").click()
    link = admin.locator(".command-line:not(.message)").inner_text().removesuffix("Copy")
    expect(admin.get_by_text(re.compile(r"in 5\d min\."))).to_be_visible()
    assert violations_now(admin) == []

    for theme in ("light", "dark"):
        guest = visit(team, at=link, token="", theme=theme)
        expect(guest.locator("main")).to_contain_text("Step time", ignore_case=True)
        assert "vp_l_" not in guest.url
        expect(page_link(guest, "Results")).to_be_visible()
        expect(page_link(guest, "Machines")).to_have_count(0)
        guest.reload()
        guest.get_by_role("button", name="Shared link").click()
        expect(guest.get_by_text("The link gives access to nothing else")).to_be_visible()
        assert violations_now(guest) == []
        guest.goto(f"{team.url}#/overview?run=onnxruntime-cpu")
        expect(guest.locator("main").get_by_role("alert")).to_contain_text("onnxruntime-cpu")

    admin.get_by_role("button", name="Revoke").click()
    expect(admin.get_by_text(re.compile(r"in 5\d min\."))).to_have_count(0)
    guest.reload()
    expect(guest.get_by_text("This link has expired")).to_be_visible()
    log_in(guest, root)
    expect(guest.get_by_role("button", name="Account of root")).to_be_visible()


def test_a_machine_is_added_granted_and_booked(team: Dashboard, root: str, visit: Visits) -> None:
    visit.tolerate("status of (401|409)")
    page = visit(team, "agents", token="")
    log_in(page, root)
    page.get_by_role("button", name="Create command").click()
    shown = page.locator(".command-line", has_text="--token").first
    command = shown.inner_text().removesuffix("Copy").split()
    FakeAgent(command[3], command[5], "gpu-lab").register()
    card = page.get_by_role("region", name="gpu-lab")
    expect(card).to_contain_text(root)
    expect(card.get_by_role("switch")).not_to_be_checked()
    card.get_by_text("Access and reservations").click()
    card.get_by_label("E-mail address").fill(root)
    card.get_by_role("button", name="Grant").click()
    expect(card.get_by_role("list", name="Also accepts tasks from")).to_contain_text(root)
    card.get_by_role("button", name="Reserve").click()
    expect(card.get_by_text("maintenance: ")).to_be_visible()
    card.get_by_role("button", name="Reserve").click()
    expect(page.get_by_role("alert")).to_contain_text("is booked from")
    card.get_by_role("button", name="Cancel: maintenance").click()
    expect(card.get_by_text("maintenance: ")).to_have_count(0)
