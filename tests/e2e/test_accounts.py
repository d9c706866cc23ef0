"""People of a team: an invitation, logging in and out, sharing a run; the laptop's page shows nothing of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from tests.e2e.live import ROOT, Dashboard, Page, Visits, expect
from tests.e2e.test_accessibility import AXE, violations
from tests.remote.queue_sites import FakeAgent

PASSWORD = "four words are enough"


@pytest.fixture
def team(tmp_path: Path, serve: Callable[..., Dashboard]) -> Dashboard:
    folder = tmp_path / "runs"
    for run in ("onnxruntime-cpu", "paddle-cpu"):
        shutil.copytree(SAMPLES / run, folder / run)
    command = [sys.executable, "-m", "visualprof", "admin", "--logdir", str(folder), "create-user"]
    subprocess.run([*command, "root@example.org", "--role", "admin"], input=PASSWORD, text=True, check=True, cwd=ROOT)
    return serve(folder, "--accounts")


def log_in(page: Page, email: str) -> None:
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()


def test_a_team_from_the_invitation_to_a_shared_run(team: Dashboard, visit: Visits) -> None:
    visit.tolerate("status of 40[14]")
    root = visit(team, "people", token="")
    root.get_by_label("E-mail address").fill("root@example.org")
    root.get_by_label("Password").fill("not this one at all")
    root.get_by_role("button", name="Log in").click()
    expect(root.get_by_role("alert")).to_contain_text("wrong")
    log_in(root, "root@example.org")
    expect(root.get_by_role("heading", name="Everybody")).to_be_visible()
    root.get_by_label("E-mail address (empty").fill("ann@example.org")
    root.get_by_role("button", name="Make a link").click()
    link = root.locator(".command-line").inner_text().removesuffix("Copy")

    ann = visit(team, at=link, token="")
    ann.get_by_label("E-mail address").fill("ann")
    expect(ann.get_by_text("This is no e-mail address")).to_be_visible()
    ann.get_by_label("E-mail address").fill("ann@example.org")
    ann.get_by_label("Name").fill("Ann")
    ann.get_by_label("New password").fill(PASSWORD)
    ann.get_by_role("button", name="Make an account").click()
    expect(ann.get_by_role("button", name="Account of Ann")).to_be_visible()
    assert "invitation" not in ann.url
    expect(ann.locator("main")).to_contain_text("Step time", ignore_case=True)

    root.goto(f"{team.url}#/overview?run=paddle-cpu")
    root.get_by_role("button", name="Share").click()
    root.get_by_label("Its owner and administrators").check()
    root.get_by_role("button", name="Save", exact=True).click()
    ann.goto(f"{team.url}#/overview?run=paddle-cpu")
    expect(ann.locator("main").get_by_role("alert")).to_contain_text("paddle-cpu")

    ann.get_by_role("button", name="Account of Ann").click()
    ann.get_by_role("button", name="Log out").click()
    expect(ann.get_by_role("heading", name="Log in")).to_be_visible()
    assert "paddle-cpu" in root.request.get(f"{team.url}api/v1/runs").text()


@pytest.mark.skipif(not AXE.exists(), reason="the page's packages are not installed: make test")
@pytest.mark.parametrize("page", ["account", "people", "agents"])
def test_nobody_is_shut_out_of_their_account(team: Dashboard, visit: Visits, page: str) -> None:
    visit.tolerate("status of 401")
    for theme in ("light", "dark"):
        tab = visit(team, page, token="", theme=theme)
        log_in(tab, "root@example.org")
        expect(tab.get_by_role("button", name="Account of root")).to_be_visible()
        assert violations(tab) == []


def test_a_laptop_knows_no_accounts(samples: Dashboard, visit: Visits) -> None:
    page = visit(samples, "overview")
    page.locator("main h1").first.wait_for()
    expect(page.get_by_role("button", name="Share")).to_have_count(0)


def test_a_machine_is_added_granted_and_booked(team: Dashboard, visit: Visits) -> None:
    visit.tolerate("status of (401|409)")
    page = visit(team, "agents", token="")
    log_in(page, "root@example.org")
    page.get_by_role("button", name="Make a command").click()
    shown = page.locator(".command-line", has_text="--token").first
    command = shown.inner_text().removesuffix("Copy").split()
    FakeAgent(command[3], command[5], "gpu-lab").register()
    card = page.get_by_role("region", name="gpu-lab")
    expect(card).to_contain_text("root@example.org")
    expect(card.get_by_role("switch")).not_to_be_checked()
    card.get_by_text("Who uses it, and when").click()
    card.get_by_label("E-mail address").fill("root@example.org")
    card.get_by_role("button", name="Grant").click()
    expect(card.get_by_role("list", name="It also works for")).to_contain_text("root@example.org")
    card.get_by_role("button", name="Keep it").click()
    expect(card.get_by_text("maintenance: ")).to_be_visible()
    card.get_by_role("button", name="Keep it").click()
    expect(page.get_by_role("alert")).to_contain_text("is booked from")
    card.get_by_role("button", name="End: maintenance").click()
    expect(card.get_by_text("maintenance: ")).to_have_count(0)
