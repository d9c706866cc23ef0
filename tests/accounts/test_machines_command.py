"""`visualprof machines` on a server with accounts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from queue_sites import FakeAgent, served
from teams import PASSWORD, SHELL

from visualprof.accounts.principal import Actor, Principal
from visualprof.accounts.service import Accounts
from visualprof.cli import main

Typed = Callable[..., str]


@pytest.fixture
def typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Typed]:
    """Return what a command of a user prints: standard output, or the error."""
    with served(tmp_path / "runs", accounts=True) as server:
        accounts = Accounts(server.job_service.open().database)
        tokens: dict[str, str] = {}
        for name, role in (("root", "admin"), ("ann", "member"), ("bob", "member")):
            user = accounts.users.create(SHELL, f"{name}@example.org", name, role, PASSWORD).id  # type: ignore[arg-type]
            by = Actor(Principal(user, role=role), "shell")  # type: ignore[arg-type]
            tokens[name] = accounts.sessions.create_token(by, "shell", role, 1)  # type: ignore[arg-type]

        def run(name: str, *words: str) -> str:
            status = main(["machines", *words, "--server", server.url, "--token", tokens[name]])
            out, err = capsys.readouterr()
            return out if status == 0 else err

        yield run


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if "box" in line]


def test_a_machine_from_its_enrolment_to_its_maintenance(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    words = shlex.split(typed("ann", "enrol"))
    assert words[:3:2] == ["visualprof", "--server"]
    FakeAgent(words[3].rstrip("/"), words[5], "box").register()
    assert len(lines(typed("ann"))) == 1
    assert lines(typed("bob")) == []
    assert "No user has the address" in typed("ann", "grant", "box", "x@example.org")
    typed("ann", "grant", "box", "bob@example.org")
    assert len(lines(typed("bob"))) == 1
    assert "Only its owner" in typed("bob", "drain", "box")
    assert "drained" in typed("ann", "drain", "box")
    assert "admin" in typed("ann", "public", "box")
    now = datetime.now()
    begin, end = (f"{now + timedelta(hours=hours):%Y-%m-%dT%H:%M}" for hours in (1, 2))
    assert f"for bob@example.org {begin.replace('T', ' ')}" in typed(
        "root", "reserve", "box", "bob@example.org", "--from", begin, "--until", end
    )
    assert "for somebody else" not in typed("bob")
    assert "is booked from" in typed("root", "maintain", "box", "--until", end)
    typed("root", "maintain", "box", "--until", begin)
    assert "maintenance" in typed("bob")
    assert "2 bookings called" in typed("root", "free", "box")
    assert "is no time" in typed("root", "maintain", "box", "--until", "tomorrow")
    typed("ann", "revoke", "box", "bob@example.org")
    assert lines(typed("bob")) == []
