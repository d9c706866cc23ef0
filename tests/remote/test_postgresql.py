"""Behavior specific to PostgreSQL: opening and migration, clock, turns, notifications, errors."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from queue_sites import FAILED, capabilities, member, opened, point, request, together
from sqlalchemy import insert, inspect, literal_column, update
from test_queue_database import HEAD, later

from tests.conftest import until
from tests.postgres import Postgres
from visualprof.cli import main
from visualprof.errors import BadParameter, VisualprofError
from visualprof.reader.logdir.scan import Root
from visualprof.remote.protocol import Spec
from visualprof.remote.queue.errors import DatabaseUnavailable, LeaseExpired, ServerBusy
from visualprof.remote.queue.service import JobService
from visualprof.remote.queue.settings import QueueSettings
from visualprof.remote.queue.store import postgresql as module
from visualprof.remote.queue.store.agents import Agents
from visualprof.remote.queue.store.database import Database, current_revision, migrate, next_revision, without_result
from visualprof.remote.queue.store.postgresql import open_database
from visualprof.remote.queue.store.tables import metadata, runs
from visualprof.remote.queue.tasks import notify_bridge
from visualprof.remote.queue.tasks.maintenance import MaintenanceThread
from visualprof.remote.queue.tasks.messages import TaskHeartbeat

pytestmark = pytest.mark.slow

NOWHERE = Path("/nowhere")


@pytest.fixture
def url(postgres: Postgres, tmp_path: Path) -> str:
    """Of a database with its tables."""
    return postgres.of(tmp_path)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = open_database(url, NOWHERE)
    yield database
    database.close()


@pytest.fixture
def pair(url: str, tmp_path: Path) -> Iterator[tuple[JobService, JobService]]:
    """Two servers on one database and one folder."""
    with opened(tmp_path / "runs", database=url) as one, opened(tmp_path / "runs", database=url) as other:
        yield one, other


def columns(database: Database) -> dict[str, set[str]]:
    inspection = inspect(database.engine)
    return {
        table.name: {column["name"] for column in inspection.get_columns(table.name)}
        for table in metadata.sorted_tables
    }


EXPECTED = {table.name: {column.name for column in table.columns} for table in metadata.sorted_tables}


def test_a_new_database_gets_the_tables_and_indexes(postgres: Postgres) -> None:
    database = open_database(postgres.new(), NOWHERE)
    assert columns(database) == EXPECTED
    inspection = inspect(database.engine)
    names = {index["name"] for table in metadata.tables for index in inspection.get_indexes(table)}
    assert {str(index.name) for table in metadata.tables.values() for index in table.indexes} <= names
    database.close()


def test_two_servers_that_start_at_once_make_the_tables_once(postgres: Postgres) -> None:
    url = postgres.new()
    together(4, lambda _: open_database(url, NOWHERE).close())
    database = open_database(url, NOWHERE)
    with database.read() as connection:
        assert current_revision(connection) == 0
    database.close()


def test_the_first_schema_is_brought_up_to_date_and_keeps_its_rows(postgres: Postgres) -> None:
    url = postgres.new()
    database = open_database(url, NOWHERE)
    Agents(database, 30).register("box", public=True, local=False, address="", capabilities=capabilities())
    migrate(database, "it", target="0001")
    database.close()
    database = open_database(url, NOWHERE)
    assert columns(database) == EXPECTED
    assert [(agent.name, agent.standing) for agent in Agents(database, 30).list_visible()] == [("box", "works")]
    database.close()


def test_a_failing_migration_leaves_the_database_unchanged(database: Database, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        migrate(database, "it", later(tmp_path, "    1 / 0\n"))
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == HEAD
    assert columns(database) == EXPECTED


def test_a_newer_database_is_refused(url: str, database: Database, tmp_path: Path) -> None:
    migrate(database, "it", later(tmp_path))
    with pytest.raises(VisualprofError, match=r"the database t\d+ was made by a newer visualprof \(schema 9999\)"):
        open_database(url, NOWHERE)


# --- errors, in which no password is ---


def refusal(url: str) -> VisualprofError:
    with pytest.raises(VisualprofError) as caught:
        open_database(url, NOWHERE)
    assert "guess" not in f"{caught.value.error} {caught.value.hint}"
    return caught.value


def test_a_wrong_password_is_reported_without_showing_it(postgres: Postgres) -> None:
    postgres.sql("DROP ROLE IF EXISTS locked; CREATE ROLE locked LOGIN PASSWORD 'right'")
    error = refusal(f"postgresql+psycopg://locked:guess@/postgres?host={postgres.folder}")
    assert 'password authentication failed for user "locked"' in error.error
    assert "--database" in error.hint


def test_a_missing_server_is_reported(postgres: Postgres) -> None:
    error = refusal(f"postgresql+psycopg://visualprof:guess@/postgres?host={postgres.folder}/none")
    assert error.error.startswith("the database postgres cannot be used: connection")
    assert isinstance(error, DatabaseUnavailable)


def test_a_missing_database_is_reported(postgres: Postgres) -> None:
    assert 'database "nope" does not exist' in refusal(postgres.url("nope")).error


@pytest.mark.parametrize(
    "text",
    [
        "mysql://u:guess@h/d",
        "postgresql+psycopg://u:gu/guess@h:x/d",
        "guess",
        "sqlite:///guess",
        "postgresql://u:guess@h:99x/d",
    ],
)
def test_an_invalid_address_is_not_shown(text: str) -> None:
    assert isinstance(refusal(text), (BadParameter, DatabaseUnavailable))


def test_an_old_server_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MIN_VERSION", 99)
    assert "is too old" in refusal(url).error


def test_a_database_that_cannot_keep_every_text_is_refused(postgres: Postgres) -> None:
    postgres.sql("DROP DATABASE IF EXISTS ascii")
    postgres.sql("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    assert "keeps texts as SQL_ASCII" in refusal(postgres.url("ascii")).error


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert refusal("postgresql+psycopg://u:guess@h/d").hint == "pip install 'visualprof[team]'"


def test_a_writer_that_hangs_makes_the_others_busy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SET_TIMEOUTS", "SET lock_timeout = '100ms'")
    first, other = open_database(url, NOWHERE), open_database(url, NOWHERE)
    with first.write() as connection:
        assert current_revision(connection) == 0
        with pytest.raises(ServerBusy, match="busy"), other.write() as late:
            next_revision(late)
        with other.read() as connection:
            assert current_revision(connection) == 0, "who reads does not wait"
    with other.write() as connection:
        assert next_revision(connection) == 1
    first.close()
    other.close()


# --- what differs from SQLite, and must not show ---


def test_texts_may_have_any_length_and_a_nul(database: Database) -> None:
    agents = Agents(database, 30)
    agents.register("a\0b", public=True, local=False, address="x" * 200, capabilities=capabilities())
    assert [agent.name for agent in agents.list_visible()] == ["a�b"]
    with database.write() as connection:
        connection.execute(insert(runs).values(folder="f" * 1000, visibility="public"))


def test_a_reader_sees_a_consistent_state(pair: tuple[JobService, JobService]) -> None:
    first, other = (remote.open() for remote in pair)
    with first.database.read() as connection:
        before = current_revision(connection)
        other.jobs.submit(request())
        assert current_revision(connection) == before
    assert first.jobs.revision() > before


def test_a_writer_waits_for_the_database_only_on_its_first_statement(
    pair: tuple[JobService, JobService], monkeypatch: pytest.MonkeyPatch
) -> None:
    from psycopg import Pipeline

    queue, waits, sync = pair[0].open(), list[int](), Pipeline.sync
    monkeypatch.setattr(Pipeline, "sync", lambda self: (waits.append(1), sync(self)))

    def asked(act: Callable[[], object]) -> int:
        waits.clear()
        act()
        return len(waits)

    queue.jobs.submit(request())
    agent = member(queue)
    lease = queue.leases.lease(agent, ["cpu"], 0)
    assert lease
    task, token = lease.task, lease.lease
    held = queue.leases.leased_task(agent, task, token)
    assert asked(lambda: queue.logs.append(held, 0, b"a line\n")) == 0, "all of it goes at once, with the end"
    assert asked(lambda: queue.leases.save_point(agent, task, token, 1, point())) == 1, "does the lease hold?"
    assert asked(lambda: queue.leases.heartbeat(agent, [TaskHeartbeat(task, token, "measuring", 0.5)])) == 1
    assert asked(lambda: queue.agents.mark_seen(agent, capabilities())) == 0
    assert queue.jobs.points(queue.jobs.get_by_task(task)) == {task: [point()]}


def test_a_failing_change_is_rolled_back(database: Database) -> None:
    wrong = without_result(update(metadata.tables["revisions"]).values(revision=literal_column("1 / 0")))

    def change() -> None:
        with database.write() as connection:
            next_revision(connection)
            connection.execute(wrong)

    with pytest.raises(DatabaseUnavailable):
        change()
    with database.read() as connection:
        assert current_revision(connection) == 0


def test_writers_of_two_servers_take_turns(url: str) -> None:
    databases = [open_database(url, NOWHERE) for _ in range(2)]

    def write(number: int) -> None:
        for _ in range(20):
            with databases[number % 2].write() as connection:
                revision = current_revision(connection)
                assert next_revision(connection) == revision + 1

    together(6, write)
    with databases[0].read() as connection:
        assert current_revision(connection) == 120
    [database.close() for database in databases]


def test_a_machine_that_is_drained_gets_nothing(pair: tuple[JobService, JobService]) -> None:
    queue = pair[0].open()
    agent = member(queue)
    queue.jobs.submit(request())
    queue.agents.update(agent.id, None, None, "drained")
    assert queue.leases.lease(agent, ["cpu"], 0) is None
    queue.agents.update(agent.id, None, None, "works")
    assert queue.leases.lease(agent, ["cpu"], 0)


# --- the clock ---


@pytest.mark.parametrize("hours", [1, -1])
def test_a_server_with_a_wrong_clock_neither_ends_a_task_nor_an_agent(
    pair: tuple[JobService, JobService], monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    first, other = (remote.open() for remote in pair)
    first.jobs.submit(request())
    agent = member(first)
    lease = first.leases.lease(agent, ["cpu"], 0)
    assert lease
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + hours * 3600 * 10**9)
    assert other.maintenance
    other.maintenance.run_once()
    assert first.jobs.get(lease.job).tasks[0].state == "running"
    assert other.agents.list_visible()[0].online(30)
    assert abs(other.database.now_ns() - real()) < 1e9
    assert abs(other.agents.list_visible()[0].seen_ns - time.time_ns()) < 2e9, (
        "told by the clock of the server that is asked"
    )


def test_only_one_server_requeues_lost_tasks_at_a_time(pair: tuple[JobService, JobService]) -> None:
    first, other = (remote.open() for remote in pair)
    first.jobs.submit(request(retries=0))
    lease = first.leases.lease(member(first), ["cpu"], 0)
    assert lease
    with first.database.write() as connection:
        connection.exec_driver_sql("UPDATE tasks SET lease_until_ns = 1")
    upkeep = MaintenanceThread(other.database, other.notifier, 30, on_ended=lambda _: None)
    with first.database.exclusive() as mine:
        assert mine
        upkeep.run_once()
        assert first.jobs.get(lease.job).tasks[0].state == "running"
    upkeep.run_once()
    assert first.jobs.get(lease.job).tasks[0].reason == "agent_lost"


# --- notices ---


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again by himself."""
    monkeypatch.setattr(notify_bridge, "LISTEN_RECHECK_INTERVAL_S", 60.0)
    monkeypatch.setattr(notify_bridge, "RECHECK_INTERVAL_S", 61.0)
    monkeypatch.setattr(notify_bridge, "_RETRY_DELAY_S", 0.1)


def listening(*remotes: JobService) -> None:
    for remote in remotes:
        until(
            lambda remote=remote: (
                remote._notifier.recheck_interval_s == notify_bridge.LISTEN_RECHECK_INTERVAL_S
                and remote._notifier.notification_count
            )
        )


def told(waiting: JobService, submitting: JobService, key: str) -> float:
    """Seconds from a submission to one server until an agent that waits at the other one has the task."""
    queue, got = waiting.open(), list[float]()
    agent = member(queue)
    thread = threading.Thread(
        target=lambda: got.append(time.monotonic() if queue.leases.lease(agent, ["cpu"], 20) else 0)
    )
    thread.start()
    time.sleep(0.2)
    begun = time.monotonic()
    submitting.open().jobs.submit(request(key))
    thread.join(25)
    return got[0] - begun


@pytest.mark.usefixtures("patient")
def test_a_job_wakes_an_agent_that_waits_at_another_server(pair: tuple[JobService, JobService]) -> None:
    listening(*pair)
    assert 0 < told(*pair, "there") < 5
    assert 0 < told(pair[1], pair[0], "back") < 5


@pytest.mark.usefixtures("patient")
def test_everything_continues_after_the_database_was_unavailable(
    postgres: Postgres, pair: tuple[JobService, JobService], caplog: pytest.LogCaptureFixture
) -> None:
    listening(*pair)
    before = [remote._notifier.notification_count for remote in pair]
    postgres.stop("immediate")
    with pytest.raises(DatabaseUnavailable, match="see the server's log"):  # which address it has is not for all
        pair[0].open().jobs.revision()
    postgres.start()
    for remote, notices in zip(pair, before, strict=True):
        until(lambda remote=remote, notices=notices: remote._notifier.notification_count > notices)
    listening(*pair)
    assert 0 < told(*pair, "again") < 5
    assert "sends no notifications" in caplog.text
    assert str(postgres.folder) in caplog.text


@pytest.mark.usefixtures("patient")
def test_a_server_that_lost_its_connection_for_notices_makes_another(
    postgres: Postgres, pair: tuple[JobService, JobService]
) -> None:
    listening(*pair)
    before = [remote._notifier.notification_count for remote in pair]
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    assert len(postgres.sql(ended)) >= 2
    for remote, notices in zip(pair, before, strict=True):
        until(lambda remote=remote, notices=notices: remote._notifier.notification_count > notices)
    listening(*pair)
    assert 0 < told(*pair, "again") < 5


def test_without_notices_the_database_is_asked(
    pair: tuple[JobService, JobService], monkeypatch: pytest.MonkeyPatch
) -> None:
    listening(*pair)
    monkeypatch.setattr(pair[1]._notifier, "forward", None)  # it ends before it tells
    assert 0 < told(*pair, "unheard") < 5


def test_other_servers_are_notified_of_a_retried_task(pair: tuple[JobService, JobService]) -> None:
    first, other = (remote.open() for remote in pair)
    listening(*pair)
    job, _ = first.jobs.submit(request("k", Spec("a", "onnxruntime"), Spec("b", "onnxruntime")))
    agent = member(first)
    for _ in range(2):
        lease = other.leases.lease(agent, ["cpu"], 0)
        assert lease
        first.finalizer.finish(agent, lease.task, lease.lease, FAILED)
    before = other.notifier.notification_count
    first.jobs.retry(job)
    assert until(lambda: other.notifier.notification_count > before)


def test_a_report_that_two_servers_get_at_once_ends_the_task_once(
    pair: tuple[JobService, JobService], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = (remote.open() for remote in pair)
    agent = member(first)
    first.jobs.submit(request())
    lease = first.leases.lease(agent, ["cpu"], 0)
    assert lease
    end, published = other.finalizer._publish_and_end, list[int]()

    def late(*report: Any) -> None:
        first.finalizer.finish(agent, lease.task, lease.lease, FAILED)
        published.append(first.jobs.revision())
        end(*report)

    monkeypatch.setattr(other.finalizer, "_publish_and_end", late)
    other.finalizer.finish(agent, lease.task, lease.lease, FAILED)
    assert first.jobs.revision() == published[0]
    with pytest.raises(LeaseExpired):
        other.finalizer.finish(agent, lease.task, lease.lease, replace(FAILED, state="cancelled"))


# --- commands ---


def test_an_administrator_is_made_in_the_shell(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("four words are enough\n"))
    assert main(["admin", "--database", url, "create-user", "kim@example.org", "--role", "admin"]) == 0
    assert main(["admin", "--database", url, "list"]) == 0
    assert capsys.readouterr().out.split() == ["kim@example.org", "admin", "kim"] * 2
    monkeypatch.setenv("VISUALPROF_DATABASE", url)
    assert main(["admin", "list"]) == 0
    assert "kim@example.org" in capsys.readouterr().out
    assert main(["admin", "backup", str(tmp_path / "copy")]) != 0
    assert "pg_dump" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_with_a_database_url_the_folder_has_no_sqlite_file(url: str, tmp_path: Path) -> None:
    with opened(tmp_path / "runs", database=url) as remote:
        assert not list(remote.folder.glob("jobs.sqlite*"))
    later = JobService(Root(tmp_path / "runs", ""), QueueSettings(database=url))
    assert later.open_existing(), "it was kept before"
    later.close()
