"""The database: opening, migrating, and transactions that do not trip over each other."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
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

from visualprof.errors import BadParameter, VisualprofError
from visualprof.messages import msg
from visualprof.remote.queue.errors import DatabaseUnavailable, DiskFull, ServerBusy
from visualprof.remote.queue.store.model_tables import metadata  # which then has every table
from visualprof.remote.queue.store.tables import REVISIONS, audit, revisions

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

_BUSY_S = 30
_CONNECTIONS = 80  # more than the server has threads; they are opened as they are needed, and kept
_BEGIN = "visualprof_begin"  # how a transaction of SQLite begins; "" is none
RESULT_UNUSED = "visualprof_unasked"
UNUSABLE = msg("queue.database_jobs_cannot_used", "the database of jobs cannot be used: ")
_DAMAGED = msg(
    "queue.end_server_move_jobs",
    "end the server, move jobs.sqlite away with its -wal and -shm files, and start it anew; runs are not lost",
)
_MIGRATIONS = Path(__file__).parent / "migrations"
_SCHEMA = "SELECT version_num FROM alembic_version"
_BACKUP = select(func.max(audit.c.at_ns)).where(audit.c.action == "backup")
_REVISION = select(revisions.c.revision).where(revisions.c.name == bindparam("kind"))
_COUNTED = (
    update(revisions)
    .where(revisions.c.name == bindparam("kind"))
    .values(revision=revisions.c.revision + 1)
    .returning(revisions.c.revision)
)
Statement = TypeVar("Statement", bound=Executable)
_migrating = threading.Lock()  # alembic keeps what it works on in a global


class Database:
    """Transactions over an engine: here a file of SQLite; `PostgreSQL` is the other kind.

    Writers take turns, also those of several servers, so that what one has read is still so when it writes. Inside the
    process they wait for each other here: SQLite's own waiting sleeps up to 100 ms at a time.
    """

    clock_offset_ns = 0  # what the database's clock shows beyond that of this machine
    uses_local_clock = True  # it is this machine's
    kind = "SQLite"
    remedy = msg("queue.move_away_begin_anew", "move it away to begin anew")  # where it cannot be used
    _errors: type[Exception] = sqlite3.DatabaseError  # of the driver, which is also asked past SQLAlchemy

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._looker = engine.execution_options(**{_BEGIN: ""})
        self._reader = engine
        self._writer = engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
        self._turn = threading.Lock()

    @contextlib.contextmanager
    def read(self) -> Generator[Connection]:
        """A transaction that sees one state of the database and changes nothing.

        Raises: Damaged.
        """
        with self._translate_errors(), self._reader.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def query(self) -> Generator[Connection]:
        """As `read`, where each statement may see another state: for one, which needs no transaction around it.

        Raises: Damaged.
        """
        with self._translate_errors(), self._looker.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def write(self) -> Generator[Connection]:
        """A transaction that is committed at the end of the block, or undone by an exception.

        Raises: DiskFull, Damaged.
        """
        with self._translate_errors(), self._turn, self._writer.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def exclusive(self) -> Generator[bool]:
        """Is no other server of this database in such a block? On a file any number may be."""
        yield True

    def now_ns(self) -> int:
        """Now, by the clock that all servers of this database share."""
        return time.time_ns() + self.clock_offset_ns

    def status(self) -> tuple[int | None, str, str]:
        """Its size in bytes, None where nothing tells; its schema, and that which this program makes."""
        known = max(path.name[:4] for path in (_MIGRATIONS / "versions").glob("[0-9]*.py"))
        with self.read() as connection:
            return self._size_bytes(connection), connection.exec_driver_sql(_SCHEMA).scalar_one(), known

    def last_backup_ns(self) -> int | None:
        """When `visualprof admin backup` last copied it; None when that is not known."""
        with self.read() as connection:
            return connection.execute(_BACKUP).scalar()

    def _size_bytes(self, connection: Connection) -> int | None:
        pages, size = (connection.exec_driver_sql(f"PRAGMA page_{what}").scalar_one() for what in ("count", "size"))
        return int(pages) * int(size)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    @contextlib.contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Say what is wrong with the database, instead of calling it unexpected.

        Raises: DiskFull, Crowded, Damaged.
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
        """What the driver's error means."""
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
        return DatabaseUnavailable(f"{UNUSABLE}{reason}", _DAMAGED)


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


def migrate(database: Database, name: str, folder: Path = _MIGRATIONS, to: str = "") -> None:
    """Make the tables, or brings older ones up to date, in one transaction: all of it, or nothing.

    Args:
        database: to be changed.
        name: how errors call it.
        folder: of the migrations.
        to: an earlier schema, to which it then goes back; what that cannot hold is gone.

    Raises: VisualprofError: it was made by a newer version, or it is no database. BadParameter: no schema is called so.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext

    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    try:
        with _migrating, database.write() as connection:
            config.attributes["connection"] = connection
            context, scripts = MigrationContext.configure(connection), _scripts(folder)
            current = context.get_current_revision()
            known = [str(script.revision) for script in scripts.walk_revisions()]
            if to and to not in known:
                raise BadParameter(
                    msg("queue.there_no_schema", f"there is no schema {to[:40]!r}"),
                    msg("queue.there_2", f"there are: {', '.join(reversed(known))}"),
                )
            if current is None:
                metadata.create_all(connection)
                connection.execute(insert(revisions), [{"name": kind, "revision": 0} for kind in REVISIONS])
                context.stamp(scripts, "head")
            elif current not in known:
                raise VisualprofError(
                    msg(
                        "queue.made_newer_visualprof_schema",
                        f"{name} was made by a newer visualprof (schema {current})",
                    ),
                    msg(
                        "queue.version_visualprof_admin_migrate",
                        f"with that version `visualprof admin migrate {known[0]}` makes it fit this one",
                    ),
                )
            elif current != known[0]:
                command.upgrade(config, "head")
            if to:
                command.downgrade(config, to)
    except DatabaseUnavailable as error:
        reason = error.error.removeprefix(UNUSABLE)
        raise DatabaseUnavailable(
            msg("queue.cannot_used", f"{name} cannot be used: {reason}"), database.remedy
        ) from error


@cache
def _scripts(folder: Path) -> ScriptDirectory:
    """The migrations of a folder, the newest first; reading them takes longer than making a database."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(folder))


def without_result(statement: Statement) -> Statement:
    """A statement of which nobody wants to know what it did: a writer need not wait for it."""
    return statement.execution_options(**{RESULT_UNUSED: True})


def next_revision(connection: Connection, name: str = "jobs") -> int:
    """Count one change of the named kind and gives the new revision."""
    return int(connection.execute(_COUNTED, {"kind": name}).scalar_one())


def revision_subquery(name: str) -> ScalarSelect[int]:
    """The present revision of the named kind, in a statement that asks for more."""
    return select(revisions.c.revision).where(revisions.c.name == name).scalar_subquery()


def current_revision(connection: Connection, name: str = "jobs") -> int:
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
    """Writers take the lock at once: one that read first could not get it any more, and would fail.

    Who looks begins nothing: each statement of theirs is its own transaction.
    """
    begin = connection.get_execution_options().get(_BEGIN, "BEGIN")
    driver: Any = connection.connection.driver_connection  # past SQLAlchemy, which takes ten times as long for it
    if begin:
        driver.execute(begin)
