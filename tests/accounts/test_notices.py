"""Notifications of users: which events, when and where; each event once, however many servers run."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from receivers import mail_server, webhook
from sqlalchemy import func, insert, select, update
from teams import SHELL, Browser, Team

from tests.conftest import until
from visualprof.accounts.notifications import sender as module
from visualprof.accounts.notifications import store
from visualprof.accounts.notifications.events import LOST_LEASES
from visualprof.accounts.notifications.mail import Mailer
from visualprof.accounts.notifications.sender import MAX_ATTEMPTS, NotificationSender
from visualprof.accounts.notifications.store import notify, remove_old
from visualprof.errors import BadParameter
from visualprof.remote.queue.store.records import RetentionRule
from visualprof.remote.queue.store.tables import agents, contacts, deliveries, jobs, notices, tasks
from visualprof.remote.queue.tasks.jobs import bump_revision

LEASE_S = 30.0
WISH = {"kinds": ["job_finished", "job_failed", "machine_lost"], "language": "en", "mail": False, "webhook": ""}


@pytest.fixture
def post(team: Team) -> NotificationSender:
    return made(team)


def made(team: Team, **options: Any) -> NotificationSender:
    options = {"networks": ["127.0.0.1"], "base_url": "https://dash.example.org", **options}
    return NotificationSender(team.accounts.database, LEASE_S, **options)


def end(team: Team, state: str = "succeeded", at_ns: int | None = None) -> int:
    at_ns = at_ns or time.time_ns()
    with team.accounts.database.write() as connection:
        connection.execute(update(tasks).where(tasks.c.job == team.job).values(state=state, updated_ns=at_ns))
        bump_revision(connection, team.job)
    return at_ns


def told(browser: Browser) -> list[tuple[str, str]]:
    return [(notice["kind"], notice["subject"]) for notice in browser.ask("GET", "notices").get_json()["notices"]]


def choose(browser: Browser, **wish: object) -> Any:
    answer = browser.ask("PUT", "account/contact", json={**WISH, **wish})
    assert answer.status_code == 200, answer.get_json()
    return answer.get_json()


def count(team: Team, table: Any) -> int:
    with team.accounts.database.read() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()


def at_once(team: Team) -> None:
    """Make all delayed notifications due now."""
    with team.accounts.database.write() as connection:
        connection.execute(update(deliveries).values(due_ns=0))


@pytest.mark.parametrize(("state", "kind"), [("succeeded", "job_finished"), ("failed", "job_failed")])
def test_the_owner_is_notified_when_a_job_ends(team: Team, post: NotificationSender, state: str, kind: str) -> None:
    ann, bob = team.browser("ann"), team.browser("bob")
    post.run_once()
    assert told(ann) == []
    at_ns = end(team, state)
    post.run_once()
    answer = ann.ask("GET", "notices").get_json()
    assert answer["unread"] == 1
    assert answer["notices"] == [
        {"seq": 1, "kind": kind, "subject": team.job, "name": "ann.onnx", "at_ns": at_ns, "read": False, "slower": None}
    ]
    assert told(bob) == told(team.browser("root")) == []


@pytest.mark.both_databases
def test_only_a_further_end_of_a_job_notifies_again(team: Team, post: NotificationSender) -> None:
    ann = team.browser("ann")
    at_ns = end(team, "failed")
    post.run_once()
    end(team, "failed", at_ns)  # as when its log still comes
    post.run_once()
    assert told(ann) == [("job_failed", team.job)]
    end(team, "running")
    post.run_once()
    end(team)
    post.run_once()
    assert told(ann) == [("job_finished", team.job), ("job_failed", team.job)]


def test_cancellations_and_old_ends_are_not_notified(team: Team, post: NotificationSender) -> None:
    end(team, "cancelled")
    post.run_once()
    end(team, "succeeded", time.time_ns() - 25 * 3600 * 10**9)
    post.run_once()
    assert told(team.browser("ann")) == []


@pytest.mark.both_databases
def test_several_servers_notify_each_event_once(team: Team) -> None:
    with webhook() as hook:
        choose(team.browser("ann"), webhook=hook.url)
        servers = [made(team) for _ in range(6)]
        end(team)
        gate = threading.Barrier(len(servers))

        def look(server: NotificationSender) -> None:
            for _ in range(5):
                gate.wait()
                server.run_once()

        threads = [threading.Thread(target=look, args=(server,)) for server in servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: count(team, deliveries) == 0)
        assert (count(team, notices), len(hook.got)) == (1, 1)


def test_another_server_resends_after_a_server_dies_while_sending(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    with webhook() as hook:
        choose(team.browser("ann"), webhook=hook.url)
        end(team)
        dying = made(team)
        monkeypatch.setattr(dying, "_deliver", lambda _: None)
        dying.run_once()
        until(lambda: not dying._busy)
        made(team).run_once()
        assert hook.got == [], "it is held for the first"
        at_once(team)
        made(team).run_once()
        until(lambda: count(team, deliveries) == 0)
        assert len(hook.got) == 1


def test_reading(team: Team) -> None:
    ann, eve = team.browser("ann"), team.browser("eve")
    with team.accounts.database.write() as connection:
        for number in range(3):
            notify(connection, [team.ids["ann"], team.ids["eve"]], "job_finished", f"j{number}", "x", number)
    newest = ann.ask("GET", "notices?limit=2").get_json()
    assert (newest["unread"], [one["subject"] for one in newest["notices"]]) == (3, ["j2", "j1"])
    older = ann.ask("GET", f"notices?before={newest['notices'][-1]['seq']}").get_json()
    assert [notice["subject"] for notice in older["notices"]] == ["j0"]
    after = ann.ask("POST", "notices/read", json={"upto": newest["notices"][1]["seq"]}).get_json()
    assert (after["unread"], [one["read"] for one in after["notices"]]) == (1, [False, True, True])
    assert eve.ask("GET", "notices").get_json()["unread"] == 3, "everybody reads their own"


def test_a_webhook_describes_the_event(team: Team, post: NotificationSender) -> None:
    ann = team.browser("ann")
    with webhook() as hook:
        secret = choose(ann, webhook=hook.url, language="zh")["new_secret"]
        assert secret.startswith("vp_h_")
        assert choose(ann, webhook=hook.url)["new_secret"] is None, "it stays"
        at_ns = end(team)
        post.run_once()
        until(lambda: hook.got)
    document = json.loads(hook.got[0][1])
    text = document.pop("text")
    assert document == {
        "id": 1,
        "kind": "job_finished",
        "subject": team.job,
        "name": "ann.onnx",
        "at_ns": at_ns,
        "link": f"https://dash.example.org/#/run?job={team.job}",
    }
    assert text.startswith("[visualprof] ann.onnx: measured: The job ann.onnx finished at ")
    assert secret not in ann.ask("GET", "account/contact").get_data(as_text=True)


def test_only_chosen_kinds_are_sent(team: Team, post: NotificationSender) -> None:
    with webhook() as hook:
        choose(team.browser("ann"), webhook=hook.url, kinds=["job_failed"])
        end(team)
        post.run_once()
        assert (count(team, notices), count(team, deliveries)) == (1, 0)


def test_rejected_notifications_are_retried_a_limited_number_of_times(team: Team, post: NotificationSender) -> None:
    ann = team.browser("ann")
    with webhook(500) as hook:
        choose(ann, webhook=hook.url)
        end(team)
        for attempt in range(MAX_ATTEMPTS):
            post.run_once()
            until(lambda attempt=attempt: len(hook.got) == attempt + 1 and not post._busy)
            if attempt < MAX_ATTEMPTS - 1:
                with team.accounts.database.read() as connection:
                    row = connection.execute(select(deliveries)).one()
                wait_s = (row.due_ns - time.time_ns()) / 1e9
                assert (row.tries, round(wait_s / 30 / 4**attempt, 1)) == (attempt + 1, 1.0)
                post.run_once()
                assert len(hook.got) == attempt + 1, "not before its time"
                at_once(team)
    assert count(team, deliveries) == 0
    answer = ann.ask("GET", "account/contact").get_json()
    assert "answered with 500" in answer["trouble"]
    deed = team.accounts.audit_events(None, 1)[0]
    assert (deed.action, deed.email) == ("notice not sent", "ann@example.org")


def test_trouble_is_over_when_something_arrives(team: Team, post: NotificationSender) -> None:
    ann = team.browser("ann")
    with webhook(500, 204) as hook:
        choose(ann, webhook=hook.url)
        end(team)
        post.run_once()
        until(lambda: ann.ask("GET", "account/contact").get_json()["trouble"])
        until(lambda: not post._busy)
        at_once(team)
        post.run_once()
        until(lambda: not ann.ask("GET", "account/contact").get_json()["trouble"])
        assert count(team, deliveries) == 0


def test_private_addresses_need_permission_of_the_administrator(team: Team) -> None:
    ann, post = team.browser("ann"), made(team, networks=())
    with webhook() as hook:
        choose(ann, webhook=hook.url)
        end(team)
        post.run_once()
        until(lambda: "no public address" in ann.ask("GET", "account/contact").get_json()["trouble"])
        assert hook.got == []


def test_the_notification_queue_of_a_user_is_bounded(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_QUEUED", 3)
    choose(team.browser("ann"), webhook="http://example.org/")
    with team.accounts.database.write() as connection:
        for number in range(5):
            notify(connection, [team.ids["ann"]], "job_finished", f"j{number}", "x", 1)
    assert (count(team, notices), count(team, deliveries)) == (5, 3)


def test_a_user_who_unsubscribes_gets_no_more_notifications(team: Team) -> None:
    ann = team.browser("ann")
    choose(ann, webhook="http://example.org/")
    with team.accounts.database.write() as connection:
        notify(connection, [team.ids["ann"]], "job_finished", "j", "x", 1)
    choose(ann)
    assert count(team, deliveries) == 0


def test_a_new_kind_is_sent_to_users_with_earlier_preferences(team: Team) -> None:
    """Until they say that they want it not."""
    ann, row = team.browser("ann"), {"user": team.ids["ann"], "mail": False, "webhook": "", "language": "en"}
    with team.accounts.database.write() as connection:
        connection.execute(insert(contacts).values(**row, kinds='["job_failed"]', secret="", trouble=""))
    assert ann.ask("GET", "account/contact").get_json()["kinds"] == ["job_failed", "regression"]
    assert choose(ann, webhook="", kinds=["job_failed"])["kinds"] == ["job_failed"]


def test_mail_in_the_language_of_its_reader(team: Team) -> None:
    team.remote.open().retention.change(RetentionRule("notices", "", None))
    ann, at_ns = team.browser("ann"), 1_700_000_000 * 10**9
    with mail_server() as box:
        post = made(team, mail=Mailer(f"smtp://robot@127.0.0.1:{box.port}", "pass", "visualprof@example.org"))
        with team.accounts.database.write() as connection:
            row = {"user": team.ids["ann"], "kinds": json.dumps(WISH["kinds"]), "mail": True, "webhook": ""}
            connection.execute(insert(contacts).values(**row, language="zh", secret="", trouble=""))
            notify(connection, [team.ids["ann"]], "job_failed", "j1", "a\r\nBcc: x@example.org", at_ns)
        post.run_once()
        until(lambda: count(team, deliveries) == 0)
        choose_language(team, "en")
        with team.accounts.database.write() as connection:
            notify(connection, [team.ids["ann"]], "machine_lost", "m1", "box 1", at_ns)
        post.run_once()
        until(lambda: count(team, deliveries) == 0)
    chinese, english = box.got
    assert (chinese["To"], chinese["From"]) == ("ann@example.org", "visualprof@example.org")
    assert chinese["Subject"] == "[visualprof] a Bcc: x@example.org：失败"
    assert chinese["Bcc"] is None
    assert chinese["Auto-Submitted"] == "auto-generated"
    text = chinese.get_content()
    assert "已于 2023-11-14 22:13 UTC 失败" in text
    assert "https://dash.example.org/#/run?job=j1" in text
    assert english["Subject"] == "[visualprof] box 1: probably lost"
    assert "Nothing was heard of the machine box 1 after 2023-11-14 22:13 UTC." in english.get_content()
    assert any(line.startswith("AUTH PLAIN") for line in box.said)
    assert told(ann) == [("machine_lost", "m1"), ("job_failed", "j1")]


def choose_language(team: Team, language: str) -> None:
    with team.accounts.database.write() as connection:
        connection.execute(update(contacts).values(language=language))


def test_mail_that_is_refused_is_trouble(team: Team) -> None:
    with mail_server() as box:
        box.refuses = True
        post = made(team, mail=Mailer(f"smtp://127.0.0.1:{box.port}", "", "visualprof@example.org"))
        with team.accounts.database.write() as connection:
            row = {"user": team.ids["ann"], "kinds": "[]", "mail": True, "webhook": "", "language": "en"}
            connection.execute(insert(contacts).values(**row, secret="", trouble=""))
        assert team.browser("ann").ask("POST", "account/contact/trial").status_code == 200
        post.run_once()
        until(lambda: "nobody is called so" in team.browser("ann").ask("GET", "account/contact").get_json()["trouble"])


def test_mail_without_a_sender_or_a_server(team: Team) -> None:
    with pytest.raises(BadParameter, match="email"):
        Mailer("smtps://localhost", "")
    assert Mailer("smtps://robot%40example.org@mail.example.org", "").sender == "robot@example.org"
    assert Mailer("smtp://robot@mail.example.org", "").sender == "robot@mail.example.org"
    refused = team.browser("ann").ask("PUT", "account/contact", json={**WISH, "mail": True})
    assert (refused.status_code, refused.get_json()["error"]) == (400, "mail: this server sends no e-mail")


def test_impossible_wishes(team: Team) -> None:
    ann = team.browser("ann")
    for wish in ({"webhook": "ftp://x"}, {"kinds": ["coffee"]}, {"language": "fr"}, {"user": "root"}, {"secret": "x"}):
        assert ann.ask("PUT", "account/contact", json={**WISH, **wish}).status_code == 400, wish


def test_a_trial_comes_once_a_minute(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    eve = team.browser("eve")
    assert eve.ask("POST", "account/contact/trial").status_code == 200
    assert eve.ask("POST", "account/contact/trial").status_code == 429
    assert told(eve) == [("trial", team.ids["eve"])]
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 61 * 10**9)
    assert eve.ask("POST", "account/contact/trial").status_code == 200


def test_changed_preferences_are_in_the_audit_log(team: Team) -> None:
    choose(team.browser("eve"), webhook="https://chat.example.org/", kinds=["job_failed"])
    deed = team.accounts.audit_events(None, 1)[0]
    assert (deed.action, deed.email) == ("change notices", "eve@example.org")
    assert deed.subject == "mail False, webhook https://chat.example.org/, of job_failed"


def machine(team: Team, name: str, silent_s: float, **values: object) -> None:
    now = time.time_ns()
    row = {"public": True, "local": False, "address": "", "capabilities": "{}", "registered_ns": now, "owner": None}
    row |= {"id": name, "name": name, "token_sha256": name, "seen_ns": now - int(silent_s * 1e9), **values}
    with team.accounts.database.write() as connection:
        connection.execute(insert(agents).values(row))


@pytest.mark.both_databases
def test_a_lost_machine(team: Team, post: NotificationSender) -> None:
    root, ann = team.browser("root"), team.browser("ann")
    long = LOST_LEASES * LEASE_S + 1
    machine(team, "well", LEASE_S)
    machine(team, "lost", long)
    machine(team, "anns", long, owner=team.ids["ann"], public=False)
    machine(team, "out", long, standing="out")
    machine(team, "long-gone", 25 * 3600)
    post.run_once()
    assert told(root) == [], "a server that has just begun has heard of nobody"
    post._begun -= long
    post.run_once()
    post.run_once()
    assert told(root) == [("machine_lost", "lost")]
    assert told(ann) == [("machine_lost", "anns")]
    with team.accounts.database.write() as connection:
        connection.execute(update(agents).values(seen_ns=time.time_ns() - int((long + 5) * 1e9)))
    post.run_once()
    assert told(root).count(("machine_lost", "lost")) == 2, "it was there again meanwhile"


@pytest.mark.both_databases
def test_old_notices_go(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_PER_USER", 2)
    choose(team.browser("ann"), webhook="http://example.org/")
    now = time.time_ns()
    with team.accounts.database.write() as connection:
        notify(connection, [team.ids["eve"]], "job_finished", "old", "x", now - 91 * 86400 * 10**9)
        notify(connection, [team.ids["eve"]], "job_finished", "new", "x", now)
        for number in range(4):
            notify(connection, [team.ids["ann"]], "job_finished", f"j{number}", "x", now)
    remove_old(team.accounts.database)
    assert told(team.browser("ann")) == [("job_finished", "j3"), ("job_finished", "j2")]
    assert told(team.browser("eve")) == [("job_finished", "new")]
    assert count(team, deliveries) == 2


def test_the_thread_continues_after_an_error(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVAL_S", 0.01)
    rounds: list[int] = []

    def look(_: NotificationSender) -> None:
        rounds.append(1)
        raise OSError("the disk is full")

    monkeypatch.setattr(NotificationSender, "run_once", look)
    post = made(team)
    post.start()
    until(lambda: len(rounds) > 2)
    post.close()
    assert not post._thread.is_alive()


def test_a_disabled_user_gets_no_notifications(team: Team, post: NotificationSender) -> None:
    with webhook() as hook:
        choose(team.browser("ann"), webhook=hook.url)
        end(team)
        team.accounts.users.update(SHELL, team.ids["ann"], disabled=True)
        post.run_once()
        until(lambda: count(team, deliveries) == 0)
        assert hook.got == []


def test_jobs_from_before_the_upgrade_are_not_notified(team: Team, post: NotificationSender) -> None:
    end(team)
    with team.accounts.database.read() as connection:
        assert connection.execute(select(jobs.c.owner)).scalar_one() == team.ids["ann"]
    post.run_once()
    made(team).run_once()
    assert count(team, notices) == 1
