"""A private PostgreSQL of Debian's: one for each process of the tests, and a database for each queue.

What has the mark `both_databases` runs on SQLite and, as `long`, on it; it is skipped there where it is not installed.
A new SQLite file is a copy of a template.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from visualprof.remote.queue.store.database import Database

_FOLDERS = ("/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/16/bin", "/usr/lib/postgresql/15/bin")
_NAMES = itertools.count()
_filling = threading.Lock()
_SET = "-c fsync=off -c full_page_writes=off -c listen_addresses= -c max_connections=400"


def _as_user(folder: Path) -> list[str]:
    """Before a command: PostgreSQL refuses to run as root."""
    if os.geteuid():
        return []
    os.chown(folder, 65534, 65534)
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@dataclass
class Postgres:
    """A running server, by a socket in its folder."""

    folder: Path
    programs: Path
    before: list[str]
    password: str = ""
    databases: dict[str, str] = field(default_factory=dict[str, str])

    def start(self, more: str = "") -> None:
        control = [str(self.programs / "pg_ctl"), "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log")]
        self._run(*control, "-o", f"{_SET} -k {self.folder} {more}", "start")

    def stop(self, mode: str = "fast") -> None:
        self._run(str(self.programs / "pg_ctl"), "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")

    def make(self) -> None:
        self._run(
            *(str(self.programs / "initdb"), "-D", str(self.folder / "data"), "-U", "visualprof", "-A", "trust"),
            *("--no-sync", "--locale=C.UTF-8", "-E", "UTF8"),
        )
        rules = self.folder / "data" / "pg_hba.conf"
        rules.write_text("local all locked scram-sha-256\n" + rules.read_text())

    def sql(self, text: str, database: str = "postgres") -> list[Any]:
        """Return the rows of a statement."""
        import psycopg

        with psycopg.connect(host=str(self.folder), user="visualprof", dbname=database, autocommit=True) as connection:
            cursor = connection.execute(text)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://visualprof@/{database}?host={self.folder}"

    def new(self, template: str = "template0") -> str:
        """The URL of a new database."""
        name = f"t{next(_NAMES)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def of(self, folder: Path) -> str:
        """The URL of the database of a queue's folder, which has its tables already."""
        from visualprof.remote.queue.store.postgresql import open_database

        if not self.databases:
            self.databases[""] = self.new()
            open_database(self.databases[""], Path()).close()
        template = self.databases[""].partition("@/")[2].partition("?")[0]
        key = str(folder.absolute())
        return self.databases.get(key) or self.databases.setdefault(key, self.new(template))

    def drop(self, folders: set[str]) -> None:
        """Removes the databases of queues in those folders: hundreds of them are gigabytes at the end."""
        for folder in folders:
            name = self.databases.pop(folder).partition("@/")[2].partition("?")[0]
            self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _run(self, *command: str) -> None:
        subprocess.run([*self.before, *command], check=True, stdout=subprocess.DEVNULL, cwd=self.folder)


def programs() -> Path | None:
    """Return the programs of an installed PostgreSQL, `None` without a usable one."""
    initdb = shutil.which("initdb", path=os.pathsep.join((*_FOLDERS, os.environ["PATH"])))
    return Path(initdb).resolve().parent if initdb and (os.geteuid() or shutil.which("setpriv")) else None


@contextmanager
def running(found: Path) -> Iterator[Postgres]:
    """A server of its own, which is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="vp-", dir="/tmp"))  # short: the name of a socket
    server = Postgres(folder, found, _as_user(folder))
    try:
        server.make()
        server.start()
        yield server
        server.stop("immediate")  # nothing of it is kept
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Skip the test without PostgreSQL or its driver."""
    pytest.importorskip("psycopg", reason="needs psycopg")
    binaries = programs()
    if binaries is None:
        pytest.skip("needs PostgreSQL: apt-get install postgresql")
    with running(binaries) as server:
        yield server


@pytest.fixture(autouse=True)
def database_of_queues(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Queues that name no database are kept in the one that the parameter says."""
    if getattr(request, "param", "sqlite") == "sqlite":
        monkeypatch.setattr("visualprof.remote.queue.opening.open_database", _open_from_template)
        yield
        return
    from visualprof.remote.queue.service import JobService
    from visualprof.remote.queue.settings import QueueSettings

    server: Postgres = request.getfixturevalue("postgres")
    original_init, open_ones, before = JobService.__init__, list[JobService](), {"", *server.databases}

    def make(self: JobService, root: Any, settings: QueueSettings | None = None, **options: Any) -> None:
        settings = settings or QueueSettings()
        database = settings.database or server.of(settings.data or root.path / ".visualprof")
        original_init(self, root, replace(settings, database=database), **options)
        open_ones.append(self)

    monkeypatch.setattr(JobService, "__init__", make)
    yield
    [remote.close() for remote in open_ones]
    server.drop(set(server.databases) - before)


def _open_from_template(url: str, file: Path, *options: Any) -> Database:
    """Open a database; a new file is a copy of a template, because creating its tables takes most of the time."""
    from visualprof.remote.queue.store.postgresql import open_database

    with _filling, suppress(OSError):  # opening the database reports an unusable file
        if not url and not file.stat().st_size:  # a queue has created an empty file
            file.write_bytes(_template())
    return open_database(url, file, *options)


@cache
def _template() -> bytes:
    """Return the SQLite database of a new queue."""
    from visualprof.remote.queue.store.database import open_sqlite

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "template.sqlite"
        open_sqlite(path).close()
        return path.read_bytes()


def parametrize(metafunc: pytest.Metafunc) -> None:
    """For `pytest_generate_tests`."""
    if metafunc.definition.get_closest_marker("both_databases"):
        second = pytest.param("postgresql", marks=[pytest.mark.slow, pytest.mark.long])
        metafunc.parametrize("database_of_queues", ["sqlite", second], indirect=True)
