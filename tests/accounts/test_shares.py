"""No member fills what all share: machines, codes, tokens, projects, links and sessions have limits per user."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest
from sqlalchemy import update
from teams import MODEL_FILE, Browser, Team, machine, register
from werkzeug.test import TestResponse

from visualprof.accounts import codes, limits, links, projects, sessions
from visualprof.remote.queue.errors import TooManyAttempts
from visualprof.remote.queue.store import agents as agents_module
from visualprof.remote.queue.store.tables import failures
from visualprof.server.user_slots import UserSlots

pytestmark = pytest.mark.both_databases


def enrol(browser: Browser, name: str) -> TestResponse:
    return register(browser, browser.ask("POST", "agents/codes").get_json()["code"], name)


def test_a_member_who_enrols_many_machines_blocks_nobody_else(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents_module, "MAX_NEW_PER_OWNER_PER_MINUTE", 3)
    ann, bob, root = team.browser("ann"), team.browser("bob"), team.browser("root")
    for number in range(3):
        machine(ann, f"a{number}")
    refused = enrol(ann, "a3")
    assert (refused.status_code, "this user registered 3" in refused.text) == (429, True)
    machine(bob)
    for number in range(5):
        machine(root, f"r{number}")


def test_a_member_owns_a_share_of_the_machines(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents_module, "MAX_AGENTS_PER_OWNER", 2)
    ann = team.browser("ann")
    for number in range(2):
        machine(ann, f"a{number}")
    refused = enrol(ann, "a2")
    assert (refused.status_code, "this user has 2 machines" in refused.text) == (429, True)
    machine(team.browser("bob"))


def test_an_address_that_registers_many_machines_is_named(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents_module, "MAX_NEW_PER_MINUTE", 2)
    ann, bob = team.browser("ann"), team.browser("bob")
    machine(ann)
    machine(bob)
    code = ann.ask("POST", "agents/codes").get_json()["code"]
    refused = register(ann, code, address="10.9.9.9")  # what the machine says of itself does not count
    assert (refused.status_code, "2 machines registered from 127.0.0.1" in refused.text) == (503, True)
    with team.remote.open().database.write() as connection:
        connection.execute(update(failures).values(at_ns=1))
    assert register(ann, code).status_code == 200, "the code was not used up"


@pytest.mark.parametrize(
    ("module", "limit", "ask", "title"),
    [
        (codes, "MAX_CODES", lambda ann, _: ann.ask("POST", "agents/codes"), "valid codes"),
        (
            sessions,
            "MAX_TOKENS",
            lambda ann, i: ann.ask("POST", "account/tokens", json={"name": f"t{i}", "role": "member", "days": 1}),
            "tokens",
        ),
        (projects, "MAX_PROJECTS", lambda ann, i: ann.ask("POST", "projects", json={"name": f"p{i}"}), "projects"),
    ],
)
def test_codes_tokens_and_projects_of_a_user_are_bounded(
    team: Team,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    limit: str,
    ask: Callable[[Browser, int], TestResponse],
    title: str,
) -> None:
    monkeypatch.setattr(module, limit, 2)
    ann = team.browser("ann")
    assert [ask(ann, i).status_code for i in range(2)] == [201, 201]
    refused = ask(ann, 2)
    assert (refused.status_code, refused.get_json()["error"]) == (429, f"you have 2 {title}")
    assert refused.get_json()["hint"]
    assert ask(team.browser("bob"), 3).status_code == 201


def test_links_of_a_user_are_bounded(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_LINKS", 1)
    ann = team.browser("ann")
    answers = [ann.ask("POST", "links", json={"run": team.run, "hours": 1}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 429]


def test_the_oldest_session_ends_when_a_user_has_too_many(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)
    first, second, third = (team.browser("bob") for _ in range(3))
    assert [browser.ask("GET", "account").status_code for browser in (first, second, third)] == [401, 200, 200]
    assert limits.MAX_SESSIONS >= 20


@pytest.mark.parametrize("path", ["uploads?name=a.onnx", "models?name=a.onnx"])
def test_one_member_does_not_take_all_places_for_uploads(
    team: Team, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    held: list[str | None] = []

    @contextmanager
    def hold(_: UserSlots, user: str | None) -> Generator[None]:
        held.append(user)
        if user == team.ids["ann"]:
            raise TooManyAttempts("2 of your files are being read already", "try again")
        yield

    monkeypatch.setattr(UserSlots, "hold", hold)
    model = MODEL_FILE.read_bytes()
    assert team.browser("ann").ask("POST", path, data=model).status_code == 429
    assert team.browser("bob").ask("POST", path, data=model).status_code == 201
    assert held == [team.ids["ann"], team.ids["bob"]]
