"""A database of PostgreSQL: opening it, its clock, its turns, and what its errors mean."""

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

from visualprof.errors import BadParameter, VisualprofError
from visualprof.messages import msg
from visualprof.remote.queue.errors import DatabaseUnavailable, DiskFull, ServerBusy
from visualprof.remote.queue.store.database import RESULT_UNUSED, UNUSABLE, Database, migrate, open_sqlite

_log = logging.getLogger(__name__)

URL_FORM = "postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
_OLDEST = 14
_CONNECTIONS = 24  # a server of PostgreSQL has 100 by default, for all replicas
_FRESH_S = 0.1  # a connection that was used so lately is there
_CONNECT = {"connect_timeout": 10, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
# Who hangs while others wait for it must not stop them for ever.
_LIMITS = "SET lock_timeout = '30s'; SET idle_in_transaction_session_timeout = '300s'"
_LOCK = 0x76705F77  # "vp_w": the turn of writers; the next number is that of `alone`
_CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_TURN = f"SELECT pg_advisory_xact_lock({_LOCK}), {_CLOCK}"
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_PIPELINE = "visualprof_pipeline"  # of a connection that writes
_ALONE = f"SELECT pg_try_advisory_xact_lock({_LOCK + 1}), {_CLOCK}"
_BUSY = ("53300", "55P03", "57014")  # too many connections, a lock that is not to be had, a query that took too long
_FULL = "53100"


@compiles(String, "postgresql")
def _any_length(*_: Any, **__: Any) -> str:
    """As on SQLite: what comes in is checked where it comes in, and not once more by the database."""
    return "TEXT"


class PostgreSQL(Database):
    """Transactions over a server of PostgreSQL, which several servers of ours may use."""

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
        self._looker = self._writer = engine  # its connections commit each statement: who wants more says so
        self._since_ns: int | None = None

    def now_ns(self) -> int:
        """As the database's clock was when it was last seen, which is at the beginning of every change, and since."""
        return time.time_ns() if self._since_ns is None else time.monotonic_ns() + self._since_ns

    @property
    def clock_offset_ns(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """See `Database`."""
        return self.now_ns() - time.time_ns()

    @contextlib.contextmanager
    def read(self) -> Generator[Connection]:
        """See `Database`. It is undone when the connection is given back."""
        with self.query() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute(_SNAPSHOT)
            yield connection

    @contextlib.contextmanager
    def write(self) -> Generator[Connection]:
        """See `Database`. Others wait for its end, so it waits for PostgreSQL only where something is asked.

        To begin and to take the turn go along with the first statement that is asked for its result, so that it is this
        which finds the turn taken for too long; what is `unasked` goes with the next one, or with the end.

        Raises: DiskFull, Crowded, Damaged.
        """
        with self._translate_errors(), self._turn, self._writer.begin() as connection:
            driver: Any = connection.connection.driver_connection
            with driver.pipeline() as pipeline:
                driver.execute("BEGIN")
                turn = _Turn(pipeline, driver.execute(_TURN), self._note_time)
                yield connection.execution_options(**{_PIPELINE: turn})
                driver.execute("COMMIT")
            turn.taken()

    @contextlib.contextmanager
    def exclusive(self) -> Generator[bool]:
        """Is no other server of this database in such a block? The lock ends with the transaction, or its server."""
        with self.read() as connection:
            given, now_us = connection.exec_driver_sql(_ALONE).one()
            self._note_time(now_us)
            yield bool(given)

    def _size_bytes(self, connection: Connection) -> int | None:
        return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())

    def _note_time(self, now_us: int) -> None:
        self._since_ns = now_us * 1000 - time.monotonic_ns()

    def _translate(self, error: BaseException | None) -> VisualprofError:
        state, reason = getattr(error, "sqlstate", None), " ".join(str(error).split())
        for secret in (self.engine.url.password, self.engine.url.query.get("password")):
            reason = reason.replace(str(secret), "***") if secret else reason
        if state == _FULL:
            return DiskFull(
                msg("queue.database_cannot_grow", f"the database cannot grow: {reason}"),
                msg("queue.free_some_space_servers_disk", "free some space on its server's disk"),
            )
        if state in _BUSY:
            return ServerBusy(
                msg("queue.database_jobs_busy", "the database of jobs is busy"),
                msg("queue.try_again_soon", "try again soon"),
            )
        if self._since_ns is not None:  # it worked before; from now on everybody who asks gets the answer
            _log.warning("the database: %s", reason)
            reason = msg("queue.see_servers_log", "see the server's log")
        return DatabaseUnavailable(UNUSABLE + reason, self.remedy)


def open_database(url: str, file: Path) -> Database:
    """The database that is named, or else that of a file; it is made or brought up to date.

    Raises: VisualprofError: it cannot be used; no error tells of the password.
    """
    if not url:
        return open_sqlite(file)
    address = _address(url)
    try:
        importlib.import_module("psycopg")
    except ImportError as error:
        raise VisualprofError(
            msg("queue.postgresql_needs_psycopg", "PostgreSQL needs psycopg"),
            msg("queue.pip_install_visualprof_team", "pip install 'visualprof[team]'"),
        ) from error
    given = {name: value for name, value in _CONNECT.items() if name not in address.query}
    pool = {"pool_size": _CONNECTIONS, "max_overflow": 0, "pool_use_lifo": True}
    engine = create_engine(address, connect_args=given, isolation_level="AUTOCOMMIT", **pool)
    event.listen(engine, "connect", _configure, insert=True)  # before SQLAlchemy asks it anything
    event.listen(engine, "checkin", _noted)
    event.listen(engine, "checkout", _refuse_dead)
    event.listen(engine, "do_execute", _sent)
    database = PostgreSQL(engine)
    try:
        migrate(database, msg("queue.database", f"the database {address.database or ''}").rstrip())
    except BaseException:
        engine.dispose()
        raise
    return database


@dataclass
class _Turn:
    """A writer's turn. began: the statement that takes it, which tells the time. note_time: is told it once."""

    pipeline: Any
    began: Any
    note_time: Callable[[int], None]
    noted: bool = False

    def taken(self) -> None:
        """What was sent is answered. Later the time told would be of too long ago, and the clock go back."""
        if not self.noted:
            self.noted = True
            self.note_time(self.began.fetchone()[1])


def _sent(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    """A statement is run; of a writer it is waited for only where somebody asks for its result."""
    turn: _Turn | None = context.execution_options.get(_PIPELINE)
    if turn is None:
        return False
    cursor.execute(statement, parameters)
    if not context.execution_options.get(RESULT_UNUSED):
        turn.pipeline.sync()
        turn.taken()
    return True


def _noted(_: Any, record: Any) -> None:
    """A connection is given back."""
    record.info["used"] = time.monotonic()


def _refuse_dead(connection: Any, record: Any, _: Any) -> None:
    """A connection is taken. One that lay idle is asked whether it still leads anywhere, which takes a round trip.

    Raises: InvalidatePoolError: it does not, nor do others of its time; the pool then makes a new one.
    """
    if time.monotonic() - record.info.get("used", float("inf")) > _FRESH_S:
        try:
            connection.execute("")
        except connection.Error as error:
            raise InvalidatePoolError from error


def _address(url: str) -> URL:
    """Raises: BadParameter: it is none; what it is has a password in it, and is not said."""
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
    """A new connection.

    Raises: VisualprofError: the server is too old, or cannot keep every text.
    """
    from psycopg.types.string import StrDumper

    class Text(StrDumper):
        """PostgreSQL keeps no NUL, which the words of a program that crashed may have."""

        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\ufffd"))

    version, encoding = connection.info.server_version // 10000, connection.info.parameter_status("server_encoding")
    if version < _OLDEST or encoding != "UTF8":
        connection.close()
        if version < _OLDEST:
            raise VisualprofError(
                msg("queue.postgresql_too_old", f"PostgreSQL {version} is too old"),
                msg("queue.newer_needed", f"{_OLDEST} or newer is needed"),
            )
        raise VisualprofError(
            msg("queue.database_keeps_texts", f"the database keeps texts as {encoding}"),
            "CREATE DATABASE ... ENCODING 'UTF8'",
        )
    connection.adapters.register_dumper(str, Text)
    connection.autocommit = True
    connection.execute(_LIMITS)
