"""Schemas of earlier versions: from the newest back to each of them, and up again, with a row in every table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from queue_sites import opened
from sqlalchemy import BigInteger, Boolean, Float, Integer, insert, inspect, text

from visualprof.cli import main
from visualprof.errors import BadParameter
from visualprof.remote.queue.store.database import Database, migrate
from visualprof.remote.queue.store.tables import metadata

VERSIONS = Path(migrate.__code__.co_filename).parent / "migrations" / "versions"
EARLIER = sorted((path.name[:4] for path in VERSIONS.glob("0*.py")), reverse=True)[1:]


def fill(database: Database) -> None:
    """A row in every table; those that name each other belong together."""
    values = {BigInteger: 7, Integer: 7, Boolean: True, Float: 0.5}
    with database.write() as connection:
        for table in metadata.sorted_tables:
            if table.name != "revisions":
                row = {column.name: values.get(type(column.type), "x") for column in table.columns}  # type: ignore[call-overload]
                connection.execute(insert(table), row)


def rows(database: Database, columns: dict[str, list[str]]) -> dict[str, list[tuple[Any, ...]]]:
    with database.read() as connection:
        return {
            table: sorted(map(tuple, connection.execute(text(f"SELECT {', '.join(names)} FROM {table}"))))
            for table, names in columns.items()
        }


def columns(database: Database) -> dict[str, list[str]]:
    """Of every table, as statements name them."""
    inspection = inspect(database.engine)
    tables = set(inspection.get_table_names()) - {"alembic_version", "revisions"}
    return {name: sorted(f'"{column["name"]}"' for column in inspection.get_columns(name)) for name in tables}


def made(database: Database) -> set[str]:
    """The indexes."""
    queries = {"sqlite": "name FROM sqlite_master WHERE type = 'index'", "postgresql": "indexname FROM pg_indexes"}
    with database.read() as connection:
        return set(connection.execute(text(f"SELECT {queries[database.engine.dialect.name]}")).scalars())


@pytest.mark.slow
@pytest.mark.both_databases
def test_back_to_every_earlier_schema_and_up_again_nothing_is_lost_that_both_hold(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as remote:
        database = remote.open().database
        with database.write() as connection:
            for table in reversed(metadata.sorted_tables):
                if table.name != "revisions":
                    connection.execute(table.delete())
        fill(database)
        both = newest = columns(database)
        indexes = made(database)
        for schema in EARLIER:
            before = rows(database, newest)
            migrate(database, "it", target=schema)
            both = columns(database)
            assert rows(database, both) == rows_of(before, newest, both), schema
            migrate(database, "it")
            assert (columns(database), made(database)) == (newest, indexes), schema
            assert rows(database, both) == rows_of(before, newest, both), schema
            with database.read() as connection:
                values = connection.execute(text("SELECT name FROM revisions")).scalars()
                assert set(values) == {"jobs", "agents", "runs", "shared", "told"}
        assert set(both) == {"agents", "jobs", "tasks", "points", "artefacts", "blobs"}


def rows_of(
    rows: dict[str, list[tuple[Any, ...]]], names: dict[str, list[str]], some: dict[str, list[str]]
) -> dict[str, list[tuple[Any, ...]]]:
    """Of these tables and columns alone."""
    places = {table: [names[table].index(name) for name in chosen] for table, chosen in some.items()}
    return {table: sorted(tuple(row[i] for i in places[table]) for row in rows[table]) for table in some}


@pytest.mark.both_databases
def test_projects_with_equal_names_are_renamed_in_an_earlier_schema(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as remote:
        database, projects = remote.open().database, metadata.tables["projects"]
        with database.write() as connection:
            of_two = [{"id": name, "name": "vision", "created_ns": 1} for name in ("aa", "bb")]
            connection.execute(insert(projects), of_two)
        for schema in ("0012", ""):
            migrate(database, "it", target=schema)
            with database.read() as connection:
                project_names = connection.execute(text("SELECT name FROM projects ORDER BY id")).scalars().all()
            assert project_names == ["vision", "vision bb"], schema


def test_a_schema_that_never_was_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "runs") as remote:
        database = remote.open().database
        before = columns(database)
        with pytest.raises(BadParameter, match="there is no schema '12'") as caught:
            migrate(database, "it", target="12")
        assert EARLIER[0] in caught.value.hint
        assert columns(database) == before


def test_the_administrator_goes_back_by_a_command(tmp_path: Path) -> None:
    with opened(tmp_path / "runs"):
        pass
    assert main(["admin", "--logdir", str(tmp_path / "runs"), "migrate", EARLIER[0]]) == 0
    import sqlite3

    connection = sqlite3.connect(tmp_path / "runs" / ".visualprof" / "jobs.sqlite")
    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(EARLIER[0],)]
    connection.close()
    with opened(tmp_path / "runs") as remote:  # the next start of this version brings it up to date
        assert "revision" in {name.strip('"') for name in columns(remote.open().database)["runs"]}
