"""The database: opening, migrating, and transactions that do not trip over each other."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, create_engine, event, insert, select, update
from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError

from visualprof.errors import VisualprofError
from visualprof.remote.queue.refusals import Crowded, Damaged, DiskFull
from visualprof.remote.queue.store.tables import REVISIONS, metadata, revisions

_BUSY_S = 30
_CONNECTIONS = 64  # more than the server has threads; they are opened as they are needed, and kept
_WRITE = "visualprof_write"
_DAMAGED = "end the server, move jobs.sqlite away with its -wal and -shm files, and start it anew; runs are not lost"
_MIGRATIONS = Path(__file__).parent / "migrations"
_REVISION = select(revisions.c.revision).where(revisions.c.name == bindparam("kind"))
_COUNTED = (
    update(revisions)
    .where(revisions.c.name == bindparam("kind"))
    .values(revision=revisions.c.revision + 1)
    .returning(revisions.c.revision)
)
_migrating = threading.Lock()  # alembic keeps what it works on in a global


class Database:
    """Transactions over an engine.

    On SQLite writers take turns inside the process: its own waiting sleeps up to 100 ms at a time.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(**{_WRITE: True})
        self._turn: contextlib.AbstractContextManager[Any] = (
            threading.Lock() if engine.dialect.name == "sqlite" else contextlib.nullcontext()
        )

    @contextlib.contextmanager
    def read(self) -> Generator[Connection]:
        """A transaction that sees one state of the database and changes nothing.

        Raises: Damaged.
        """
        with _named(), self.engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Generator[Connection]:
        """A transaction that is committed at the end of the block, or undone by an exception.

        Raises: DiskFull, Damaged.
        """
        with _named(), self._turn, self._writer.begin() as connection:
            yield connection

    def close(self) -> None:
        """Closes every connection."""
        self.engine.dispose()


@contextlib.contextmanager
def _named() -> Generator[None]:
    """Says what is wrong with the file, instead of calling it unexpected.

    Raises: DiskFull, Damaged.
    """
    try:
        yield
    except IntegrityError:
        raise
    except (DatabaseError, sqlite3.DatabaseError) as error:  # `_begin` asks the driver itself
        reason = str(error.orig if isinstance(error, DatabaseError) else error)
        if "disk is full" in reason or "readonly database" in reason:
            raise DiskFull(f"the database cannot grow: {reason}", "free some space on the server's disk") from error
        if isinstance(error, (OperationalError, sqlite3.OperationalError)) and "locked" in reason:
            raise Crowded("the database of jobs is busy", "try again soon") from error
        raise Damaged(f"the database of jobs cannot be used: {reason}", _DAMAGED) from error


def open_sqlite(path: Path) -> Database:
    """The database of a file, which is made or brought up to date.

    Raises: VisualprofError: it is newer than this program, or no database.
    """
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": _BUSY_S, "check_same_thread": False},
        pool_size=_CONNECTIONS,
        max_overflow=0,
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    database = Database(engine)
    try:
        migrate(database, str(path))
    except BaseException:
        engine.dispose()
        raise
    return database


def migrate(database: Database, name: str, folder: Path = _MIGRATIONS) -> None:
    """Makes the tables, or brings older ones up to date, in one transaction: all of it, or nothing.

    Args:
        database: to be changed.
        name: how errors call it.
        folder: of the migrations.

    Raises: VisualprofError: it was made by a newer version, or it is no database.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    try:
        with _migrating, database.write() as connection:
            config.attributes["connection"] = connection
            current = MigrationContext.configure(connection).get_current_revision()
            if current is None:
                metadata.create_all(connection)
                connection.execute(insert(revisions), [{"name": kind, "revision": 0} for kind in REVISIONS])
                command.stamp(config, "head")
            elif current in {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}:
                command.upgrade(config, "head")
            else:
                raise VisualprofError(
                    f"{name} was made by a newer visualprof (schema {current})",
                    "install that version, or choose another folder with --data DIR",
                )
    except Damaged as error:
        reason = error.error.removeprefix("the database of jobs cannot be used: ")
        raise Damaged(f"{name} cannot be used: {reason}", "move it away to begin anew") from error


def changed(connection: Connection, name: str = "jobs") -> int:
    """Counts one change of the named kind and gives the new revision."""
    return int(connection.execute(_COUNTED, {"kind": name}).scalar_one())


def revision(connection: Connection, name: str = "jobs") -> int:
    """The present revision of the named kind."""
    return int(connection.execute(_REVISION, {"kind": name}).scalar_one())


def _configure(connection: Any, _: Any) -> None:
    """A new connection of SQLite. Its driver must not begin transactions by its own rules: see `_begin`."""
    connection.isolation_level = None
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(
            "PRAGMA synchronous=NORMAL"
        )  # a killed process loses nothing; a power cut maybe the last moments
        cursor.execute("PRAGMA foreign_keys=ON")
    finally:
        cursor.close()


def _begin(connection: Connection) -> None:
    """Writers take the lock at once: one that read first could not get it any more, and would fail."""
    write = connection.get_execution_options().get(_WRITE)
    driver: Any = connection.connection.driver_connection  # past SQLAlchemy, which takes ten times as long for it
    driver.execute("BEGIN IMMEDIATE" if write else "BEGIN")
