"""The database: opening, migrations, and transactions that do not block each other."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    Executable,
    ScalarSelect,
    bindparam,
    create_engine,
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from visualprof.clock import SYSTEM_CLOCK, Clock
from visualprof.errors import BadParameter, VisualprofError
from visualprof.messages import msg
from visualprof.remote.queue.errors import DatabaseUnavailable, DiskFull, ServerBusy
from visualprof.remote.queue.store.query_tables import metadata  # which then has every table
from visualprof.remote.queue.store.tables import REVISIONS, audit, revisions

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

_BUSY_S = 30
_MAX_CONNECTIONS = 80  # more than the server has threads; opened on demand and then kept open
_BEGIN_OPTION = "visualprof_begin"  # statement that starts an SQLite transaction; "" starts none
RESULT_UNUSED = "visualprof_unasked"
UNUSABLE = msg("queue.database_jobs_cannot_used", "the database of jobs cannot be used: ")
_DAMAGED_HINT = msg(
    "queue.end_server_move_jobs",
    "end the server, move jobs.sqlite away with its -wal and -shm files, and start it anew; runs are not lost",
)
_MIGRATIONS = Path(__file__).parent / "migrations"
_SELECT_SCHEMA = "SELECT version_num FROM alembic_version"
_LAST_BACKUP = select(func.max(audit.c.at_ns)).where(audit.c.action == "backup")
_REVISION = select(revisions.c.revision).where(revisions.c.name == bindparam("kind"))
_NEXT_REVISION = (
    update(revisions)
    .where(revisions.c.name == bindparam("kind"))
    .values(revision=revisions.c.revision + 1)
    .returning(revisions.c.revision)
)
Statement = TypeVar("Statement", bound=Executable)
_migration_lock = threading.Lock()  # alembic has global state


class Database:
    """Transactions over an engine, here an SQLite file; `PostgreSQL` is the other kind.

    Writers take turns, also between servers, so that data read in a write transaction stays unchanged. Writers of this
    process wait for a lock here, because SQLite's own waiting sleeps for up to 100 ms.

    Attributes:
        clock: This machine's clock.
        clock_offset_ns: How far the database's clock is ahead of this machine's clock.
        uses_local_clock: Whether the database uses this machine's clock.
        kind: Name of the database system.
        remedy: What to do if the database cannot be used.
    """

    clock_offset_ns = 0
    uses_local_clock = True
    kind = "SQLite"
    remedy = msg("queue.move_away_begin_anew", "move it away to begin anew")
    _errors: type[Exception] = sqlite3.DatabaseError  # the driver's error, because some calls bypass SQLAlchemy

    def __init__(self, engine: Engine, clock: Clock = SYSTEM_CLOCK) -> None:
        self.engine, self.clock = engine, clock
        self._query_engine = engine.execution_options(**{_BEGIN_OPTION: ""})
        self._read_engine = engine
        self._write_engine = engine.execution_options(**{_BEGIN_OPTION: "BEGIN IMMEDIATE"})
        self._write_lock = threading.Lock()

    @contextlib.contextmanager
    def read(self) -> Generator[Connection]:
        """Start a read-only transaction on a consistent snapshot.

        Raises:
            DatabaseUnavailable: The database is corrupt or missing.
        """
        with self._translate_errors(), self._read_engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def query(self) -> Generator[Connection]:
        """Open a connection for a single query, without a transaction. Further statements may see other states.

        Raises:
            DatabaseUnavailable: The database is corrupt or missing.
        """
        with self._translate_errors(), self._query_engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Generator[Connection]:
        """Start a transaction that is committed at the end of the block, or rolled back by an exception.

        Raises:
            DiskFull: The disk is full.
            DatabaseUnavailable: The database is corrupt or missing.
        """
        with self._translate_errors(), self._write_lock, self._write_engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def exclusive(self) -> Generator[bool]:
        """Yield whether no other server of this database is in such a block. With SQLite, every server may enter."""
        yield True

    def now_ns(self) -> int:
        """Return the time of the clock that all servers of this database share."""
        return self.clock.time_ns() + self.clock_offset_ns

    def status(self) -> tuple[int | None, str, str]:
        """Return the size in bytes (None if unknown), the database's schema, and the schema of this program."""
        program_schema = max(path.name[:4] for path in (_MIGRATIONS / "versions").glob("[0-9]*.py"))
        with self.read() as connection:
            return self._size_bytes(connection), connection.exec_driver_sql(_SELECT_SCHEMA).scalar_one(), program_schema

    def last_backup_ns(self) -> int | None:
        """Return the time of the last `visualprof admin backup`; None if unknown."""
        with self.read() as connection:
            return connection.execute(_LAST_BACKUP).scalar()

    def _size_bytes(self, connection: Connection) -> int | None:
        pages, size = (connection.exec_driver_sql(f"PRAGMA page_{pragma}").scalar_one() for pragma in ("count", "size"))
        return int(pages) * int(size)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextlib.contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Translate errors of the database to errors of the queue.

        Raises:
            DiskFull: The disk is full.
            ServerBusy: The database is busy.
            DatabaseUnavailable: The database is corrupt or missing.
        """
        try:
            yield
        except IntegrityError:
            raise
        except PoolExhausted as error:
            raise ServerBusy(
                msg("queue.database_jobs_busy", "the database of jobs is busy"),
                msg("queue.try_again_soon", "try again soon"),
            ) from error
        except (DatabaseError, self._errors) as error:
            raise self._translate(error.orig if isinstance(error, DatabaseError) else error) from error

    def _translate(self, error: BaseException | None) -> VisualprofError:
        """Return the queue's error for an error of the driver."""
        reason = str(error)
        if "disk is full" in reason or "readonly database" in reason:
            return DiskFull(
                msg("queue.database_cannot_grow", f"the database cannot grow: {reason}"),
                msg("queue.free_some_space_servers", "free some space on the server's disk"),
            )
        if isinstance(error, sqlite3.OperationalError) and "locked" in reason:
            return ServerBusy(
                msg("queue.database_jobs_busy", "the database of jobs is busy"),
                msg("queue.try_again_soon", "try again soon"),
            )
        return DatabaseUnavailable(f"{UNUSABLE}{reason}", _DAMAGED_HINT)


def open_sqlite(path: Path, clock: Clock = SYSTEM_CLOCK) -> Database:
    """Open an SQLite database, creating or migrating it if necessary.

    Raises:
        VisualprofError: The file was created by a newer version, or it is not a database.
    """
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": _BUSY_S, "check_same_thread": False},
        pool_size=_MAX_CONNECTIONS,
        max_overflow=0,
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    database = Database(engine, clock)
    try:
        migrate(database, str(path))
    except BaseException:
        engine.dispose()
        raise
    return database


def migrate(database: Database, name: str, folder: Path = _MIGRATIONS, target: str = "") -> None:
    """Create the tables, or upgrade older ones, in one transaction.

    Args:
        database: The database.
        name: Name of the database in error messages.
        folder: Folder of the migrations.
        target: An earlier schema to downgrade to; data that it cannot hold is lost.

    Raises:
        VisualprofError: The database was created by a newer version, or it is not a database.
        BadParameter: There is no such schema.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext

    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    try:
        with _migration_lock, database.write() as connection:
            config.attributes["connection"] = connection
            context, scripts = MigrationContext.configure(connection), _scripts(folder)
            current = context.get_current_revision()
            revisions_known = [str(script.revision) for script in scripts.walk_revisions()]
            if target and target not in revisions_known:
                raise BadParameter(
                    msg("queue.there_no_schema", f"there is no schema {target[:40]!r}"),
                    msg("queue.there_2", f"there are: {', '.join(reversed(revisions_known))}"),
                )
            if current is None:
                metadata.create_all(connection)
                connection.execute(insert(revisions), [{"name": kind, "revision": 0} for kind in REVISIONS])
                context.stamp(scripts, "head")
            elif current not in revisions_known:
                raise VisualprofError(
                    msg(
                        "queue.made_newer_visualprof_schema",
                        f"{name} was made by a newer visualprof (schema {current})",
                    ),
                    msg(
                        "queue.version_visualprof_admin_migrate",
                        f"with that version `visualprof admin migrate {revisions_known[0]}` makes it fit this one",
                    ),
                )
            elif current != revisions_known[0]:
                command.upgrade(config, "head")
            if target:
                command.downgrade(config, target)
    except DatabaseUnavailable as error:
        reason = error.error.removeprefix(UNUSABLE)
        raise DatabaseUnavailable(
            msg("queue.cannot_used", f"{name} cannot be used: {reason}"), database.remedy
        ) from error


@cache
def _scripts(folder: Path) -> ScriptDirectory:
    """Return the migrations of a folder, newest first.

    They are cached, because reading them takes longer than creating a database.
    """
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(folder))


def without_result(statement: Statement) -> Statement:
    """Mark a statement whose result is not needed, so that a writer does not wait for it."""
    return statement.execution_options(**{RESULT_UNUSED: True})


def next_revision(connection: Connection, name: str = "jobs") -> int:
    """Increment the revision of this name and return it."""
    return int(connection.execute(_NEXT_REVISION, {"kind": name}).scalar_one())


def revision_subquery(name: str) -> ScalarSelect[int]:
    """Return the current revision of this name as a subquery."""
    return select(revisions.c.revision).where(revisions.c.name == name).scalar_subquery()


def current_revision(connection: Connection, name: str = "jobs") -> int:
    """Return the current revision of this name."""
    return int(connection.execute(_REVISION, {"kind": name}).scalar_one())


def _configure(connection: Any, _: Any) -> None:
    """Configure a new SQLite connection. `_begin` starts transactions instead of the driver."""
    connection.isolation_level = None
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode=WAL")
        # A killed process loses nothing; a power failure may lose the latest transactions.
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
    finally:
        cursor.close()


def _begin(connection: Connection) -> None:
    """Start a transaction. Writers take the lock at once; a writer that reads first could fail to get it later.

    Query connections start none, so that each statement is its own transaction.
    """
    statement = connection.get_execution_options().get(_BEGIN_OPTION, "BEGIN")
    driver: Any = connection.connection.driver_connection  # bypasses SQLAlchemy, which takes ten times as long
    if statement:
        driver.execute(statement)
