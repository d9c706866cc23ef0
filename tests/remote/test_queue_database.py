"""The database: made, migrated, refused, shared."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from msgspec.json import encode
from queue_sites import capabilities, together
from sqlalchemy import Select, create_engine, inspect
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.dml import UpdateBase

from visualprof.errors import VisualprofError
from visualprof.remote.queue.errors import ServerBusy
from visualprof.remote.queue.store import agents, blobs
from visualprof.remote.queue.store import database as module
from visualprof.remote.queue.store.agents import Agents
from visualprof.remote.queue.store.database import migrate, next_revision, open_sqlite
from visualprof.remote.queue.store.tables import metadata
from visualprof.remote.queue.tasks import jobs, leases, logs, points, results, scheduling, task_finalizer
from visualprof.remote.queue.tasks.jobs import current_revision

PARTS = (agents, blobs, module, task_finalizer, jobs, leases, logs, points, results, scheduling)
REAL = Path(module.__file__).parent / "migrations"
HEAD = max(path.name[:4] for path in (REAL / "versions").glob("0*.py"))
LATER = f"""
import sqlalchemy as sa
from alembic import op
revision = "9999"
down_revision = "{HEAD}"
def upgrade():
    op.add_column("agents", sa.Column("color", sa.String(9), nullable=True))
"""


def columns(path: Path, table: str) -> set[str]:
    engine = create_engine(f"sqlite:///{path}")
    names = {column["name"] for column in inspect(engine).get_columns(table)}
    engine.dispose()
    return names


def schema_of(path: Path) -> str:
    connection = sqlite3.connect(path)
    schema_version = connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]
    connection.close()
    return schema_version


def later(tmp_path: Path, more: str = "") -> Path:
    folder = tmp_path / "migrations"
    shutil.copytree(REAL, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "9999_later.py").write_text(LATER + more)
    return folder


def test_migrations_make_the_tables_that_the_program_uses(tmp_path: Path) -> None:
    open_sqlite(tmp_path / "jobs.sqlite").close()
    for table in metadata.sorted_tables:
        assert columns(tmp_path / "jobs.sqlite", table.name) == {column.name for column in table.columns}


def test_migrations_make_the_indexes_that_the_program_uses(tmp_path: Path) -> None:
    open_sqlite(tmp_path / "jobs.sqlite").close()
    connection = sqlite3.connect(tmp_path / "jobs.sqlite")
    table_names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    connection.close()
    assert {str(index.name) for table in metadata.tables.values() for index in table.indexes} <= table_names


def test_an_older_database_is_brought_up_to_date_and_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    database = open_sqlite(path)
    with database.write() as connection:
        assert next_revision(connection) == 1
    migrate(database, "jobs", later(tmp_path))
    with database.read() as connection:
        assert current_revision(connection) == 1
    database.close()
    assert schema_of(path) == "9999"
    assert "color" in columns(path, "agents")


def test_a_failing_migration_leaves_the_database_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    database = open_sqlite(path)
    with pytest.raises(ZeroDivisionError):
        migrate(database, "jobs", later(tmp_path, "    1 / 0\n"))
    database.close()
    assert schema_of(path) == HEAD
    assert "color" not in columns(path, "agents")


def test_machines_of_the_first_schema_work(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    database = open_sqlite(path)
    migrate(database, "jobs", target="0001")
    database.close()
    older = sqlite3.connect(path)
    row = ("a1", "box", "hash", 1, 0, "", encode(capabilities()).decode(), 1, 1)
    names = "id, name, token_sha256, public, local, address, capabilities, registered_ns, seen_ns"
    older.execute(f"INSERT INTO agents ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    older.commit()
    older.close()
    database = open_sqlite(path)
    assert [(a.name, a.standing) for a in Agents(database, 30).list_visible()] == [("box", "works")]
    with database.read() as connection:
        assert (current_revision(connection, "runs"), current_revision(connection, "told")) == (0, 0)
    database.close()
    for table in metadata.sorted_tables:
        assert columns(path, table.name) == {column.name for column in table.columns}, table.name


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    database = open_sqlite(path)
    migrate(database, "jobs", later(tmp_path))
    database.close()
    with pytest.raises(VisualprofError, match=r"jobs.sqlite was made by a newer visualprof \(schema 9999\)"):
        open_sqlite(path)


def test_a_file_that_is_not_a_database_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    path.write_bytes(b"something else entirely, but long enough to be looked at" * 100)
    with pytest.raises(VisualprofError, match="cannot be used: file is not a database"):
        open_sqlite(path)


def test_an_undone_transaction_changes_nothing(tmp_path: Path) -> None:
    database = open_sqlite(tmp_path / "jobs.sqlite")

    def fail() -> None:
        with database.write() as connection:
            next_revision(connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.read() as connection:
        assert current_revision(connection) == 0
    database.close()


def test_writers_of_two_servers_do_not_trip_over_each_other(tmp_path: Path) -> None:
    databases = [open_sqlite(tmp_path / "jobs.sqlite") for _ in range(2)]

    def write(number: int) -> None:
        for _ in range(25):
            with databases[number % 2].write() as connection:
                revision = current_revision(connection)  # reads first, which is what deadlocks when the lock comes late
                assert next_revision(connection) == revision + 1

    together(6, write)
    with databases[0].read() as connection:
        assert current_revision(connection) == 150
    [database.close() for database in databases]


def test_tables_and_indexes_can_be_made_on_postgresql() -> None:
    dialect = postgresql.dialect()
    for table in metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            assert "CREATE" in str(CreateIndex(index).compile(dialect=dialect))


def test_statements_of_the_queue_also_work_in_postgresql() -> None:
    statements = [value for part in PARTS for value in vars(part).values() if isinstance(value, (Select, UpdateBase))]
    texts = [str(statement.compile(dialect=postgresql.dialect())) for statement in statements]
    assert {text.split()[0] for text in texts} == {"SELECT", "INSERT", "UPDATE", "DELETE"}
    assert len(texts) > 25


def test_a_database_that_another_program_holds_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BUSY_S", 0.1)
    database = open_sqlite(tmp_path / "jobs.sqlite")
    other = sqlite3.connect(tmp_path / "jobs.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ServerBusy, match="busy"), database.write():
        pytest.fail("the other one writes")
    with database.read() as connection:
        assert current_revision(connection) == 0, "who reads does not wait"
    other.execute("ROLLBACK")
    with database.write() as connection:
        assert next_revision(connection) == 1
    other.close()
    database.close()
