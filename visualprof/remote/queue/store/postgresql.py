"""A PostgreSQL database: opening it, its clock, writer turns, and the meaning of its errors."""

from __future__ import annotations

import contextlib
import importlib
import logging
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, String, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.ext.compiler import compiles

from visualprof.clock import SYSTEM_CLOCK, Clock
from visualprof.errors import BadParameter, VisualprofError
from visualprof.messages import msg
from visualprof.remote.queue.errors import DatabaseUnavailable, DiskFull, ServerBusy
from visualprof.remote.queue.store.database import RESULT_UNUSED, UNUSABLE, Database, migrate, open_sqlite

_log = logging.getLogger(__name__)

URL_FORM = "postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
_MIN_VERSION = 14
_MAX_CONNECTIONS = 24  # PostgreSQL allows 100 by default, for all replicas of the server
_MAX_UNCHECKED_IDLE_S = 0.1  # longer idle connections are checked before use
_CONNECT_ARGUMENTS = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
# A server that hangs in a transaction must not block the others forever.
_SET_TIMEOUTS = "SET lock_timeout = '30s'; SET idle_in_transaction_session_timeout = '300s'"
_WRITER_LOCK_ID = 0x76705F77  # "vp_w": advisory lock of writers; the next number is the lock of `exclusive`
_CLOCK_US = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_TAKE_TURN = f"SELECT pg_advisory_xact_lock({_WRITER_LOCK_ID}), {_CLOCK_US}"
_BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_TURN_OPTION = "visualprof_pipeline"  # execution option of a writer's connection
_TRY_EXCLUSIVE = f"SELECT pg_try_advisory_xact_lock({_WRITER_LOCK_ID + 1}), {_CLOCK_US}"
_BUSY_STATES = ("53300", "55P03", "57014")  # too many connections, a lock timeout, a query timeout
_DISK_FULL_STATE = "53100"


@compiles(String, "postgresql")
def _unlimited_length(*_: Any, **__: Any) -> str:
    """Compile strings without a maximum length, as on SQLite, because the length is checked on input."""
    return "TEXT"


class PostgreSQL(Database):
    """Transactions over a PostgreSQL database, which several of our servers may share."""

    uses_local_clock = False
    kind = "PostgreSQL"
    remedy = msg(
        "queue.see_runs_database_names",
        "see that it runs, and that --database names it, its user and the password rightly",
    )

    def __init__(self, engine: Engine) -> None:
        from psycopg import Error

        super().__init__(engine)
        self._errors = Error
        # Connections commit each statement automatically; `read` and `write` start transactions themselves.
        self._query_engine = self._write_engine = engine
        self._monotonic_offset_ns: int | None = None

    def now_ns(self) -> int:
        """Return the time of the database's clock, extrapolated from the start of the last change."""
        return time.time_ns() if self._monotonic_offset_ns is None else time.monotonic_ns() + self._monotonic_offset_ns

    @property
    def clock_offset_ns(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How far the database's clock is ahead of this machine's clock."""
        return self.now_ns() - time.time_ns()

    @contextlib.contextmanager
    def read(self) -> Generator[Connection]:
        """Start a read-only transaction on a consistent snapshot.

        It is rolled back when the connection returns to the pool.
        """
        with self.query() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute(_BEGIN_SNAPSHOT)
            yield connection

    @contextlib.contextmanager
    def write(self) -> Generator[Connection]:
        """Start a write transaction.

        Other writers wait for its end, so it waits for PostgreSQL only where a result is needed. BEGIN and the lock are
        sent
        with the first statement whose result is needed; that statement fails if the lock is not available. Statements
        marked by
        `without_result` are sent with the next one, or with the end of the transaction.

        Raises:
            DiskFull: The disk is full.
            ServerBusy: The database is busy.
            DatabaseUnavailable: The database cannot be used.
        """
        with self._translate_errors(), self._write_lock, self._write_engine.begin() as connection:
            driver: Any = connection.connection.driver_connection
            with driver.pipeline() as pipeline:
                driver.execute("BEGIN")
                turn = _WriterTurn(pipeline, driver.execute(_TAKE_TURN), self._record_time)
                yield connection.execution_options(**{_TURN_OPTION: turn})
                driver.execute("COMMIT")
            turn.record()

    @contextlib.contextmanager
    def exclusive(self) -> Generator[bool]:
        """Yield whether no other server of this database is in such a block.

        The lock ends with the transaction or the server.
        """
        with self.read() as connection:
            granted, now_us = connection.exec_driver_sql(_TRY_EXCLUSIVE).one()
            self._record_time(now_us)
            yield bool(granted)

    def _size_bytes(self, connection: Connection) -> int | None:
        return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())

    def _record_time(self, now_us: int) -> None:
        self._monotonic_offset_ns = now_us * 1000 - time.monotonic_ns()

    def _translate(self, error: BaseException | None) -> VisualprofError:
        state, reason = getattr(error, "sqlstate", None), " ".join(str(error).split())
        for password in (self.engine.url.password, self.engine.url.query.get("password")):
            reason = reason.replace(str(password), "***") if password else reason
        if state == _DISK_FULL_STATE:
            return DiskFull(
                msg("queue.database_cannot_grow", f"the database cannot grow: {reason}"),
                msg("queue.free_some_space_servers_disk", "free some space on its server's disk"),
            )
        if state in _BUSY_STATES:
            return ServerBusy(
                msg("queue.database_jobs_busy", "the database of jobs is busy"),
                msg("queue.try_again_soon", "try again soon"),
            )
        if (
            self._monotonic_offset_ns is not None
        ):  # the database worked before, so any user may see this error; details go to the log
            _log.warning("the database: %s", reason)
            reason = msg("queue.see_servers_log", "see the server's log")
        return DatabaseUnavailable(UNUSABLE + reason, self.remedy)


def open_database(url: str, file: Path, clock: Clock = SYSTEM_CLOCK) -> Database:
    """Open the database of a URL, or of a file if there is no URL, creating or migrating it if necessary.

    Raises:
        VisualprofError: The database cannot be used; no error contains the password.
    """
    if not url:
        return open_sqlite(file, clock)  # PostgreSQL has a clock of its own
    address = _parse_url(url)
    try:
        importlib.import_module("psycopg")
    except ImportError as error:
        raise VisualprofError(
            msg("queue.postgresql_needs_psycopg", "PostgreSQL needs psycopg"),
            msg("queue.pip_install_visualprof_team", "pip install 'visualprof[team]'"),
        ) from error
    arguments = {name: value for name, value in _CONNECT_ARGUMENTS.items() if name not in address.query}
    pool = {"pool_size": _MAX_CONNECTIONS, "max_overflow": 0, "pool_use_lifo": True}
    engine = create_engine(address, connect_args=arguments, isolation_level="AUTOCOMMIT", **pool)
    event.listen(engine, "connect", _configure, insert=True)  # before SQLAlchemy's own queries
    event.listen(engine, "checkin", _record_use)
    event.listen(engine, "checkout", _check_idle_connection)
    event.listen(engine, "do_execute", _execute_in_pipeline)
    database = PostgreSQL(engine)
    try:
        migrate(database, msg("queue.database", f"the database {address.database or ''}").rstrip())
    except BaseException:
        engine.dispose()
        raise
    return database


@dataclass
class _WriterTurn:
    """A writer's turn.

    Attributes:
        pipeline: Pipeline of the connection.
        statement: Cursor of the statement that takes the lock and returns the time.
        record_time: Called once with the time in us.
        is_recorded: Whether the time was recorded.
    """

    pipeline: Any
    statement: Any
    record_time: Callable[[int], None]
    is_recorded: bool = False

    def record(self) -> None:
        """Record the time after the lock's statement was answered.

        If it were recorded later, the clock would go back.
        """
        if not self.is_recorded:
            self.is_recorded = True
            self.record_time(self.statement.fetchone()[1])


def _execute_in_pipeline(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    """Execute a writer's statement, waiting only if its result is needed."""
    turn: _WriterTurn | None = context.execution_options.get(_TURN_OPTION)
    if turn is None:
        return False
    cursor.execute(statement, parameters)
    if not context.execution_options.get(RESULT_UNUSED):
        turn.pipeline.sync()
        turn.record()
    return True


def _record_use(_: Any, record: Any) -> None:
    """Record when a connection returns to the pool."""
    record.info["used"] = time.monotonic()


def _check_idle_connection(connection: Any, record: Any, _: Any) -> None:
    """Check a connection that was idle, which takes a round trip, when it leaves the pool.

    Raises:
        InvalidatePoolError: The connection is broken; the pool replaces it and all others of its age.
    """
    if time.monotonic() - record.info.get("used", float("inf")) > _MAX_UNCHECKED_IDLE_S:
        try:
            connection.execute("")
        except connection.Error as error:
            raise InvalidatePoolError from error


def _parse_url(url: str) -> URL:
    """Parse the URL of a database.

    Raises:
        BadParameter: The URL is invalid. The error omits the URL, which contains a password.
    """
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        address = None
    if address is None or address.drivername not in ("postgresql", "postgresql+psycopg"):
        raise BadParameter(
            msg("queue.no_address_database", "this is no address of a database"), f"--database {URL_FORM}"
        )
    return address.set(drivername="postgresql+psycopg")


def _configure(connection: Any, _: Any) -> None:
    """Configure a new connection.

    Raises:
        VisualprofError: The server is too old, or its encoding is not UTF-8.
    """
    from psycopg.types.string import StrDumper

    class Text(StrDumper):
        """Strings without NUL, which PostgreSQL does not store; the output of a crashed program may contain it."""

        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\ufffd"))

    version, encoding = connection.info.server_version // 10000, connection.info.parameter_status("server_encoding")
    if version < _MIN_VERSION or encoding != "UTF8":
        connection.close()
        if version < _MIN_VERSION:
            raise VisualprofError(
                msg("queue.postgresql_too_old", f"PostgreSQL {version} is too old"),
                msg("queue.newer_needed", f"{_MIN_VERSION} or newer is needed"),
            )
        raise VisualprofError(
            msg("queue.database_keeps_texts", f"the database keeps texts as {encoding}"),
            "CREATE DATABASE ... ENCODING 'UTF8'",
        )
    connection.adapters.register_dumper(str, Text)
    connection.autocommit = True
    connection.execute(_SET_TIMEOUTS)
