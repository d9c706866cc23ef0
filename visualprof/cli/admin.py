"""Manage the accounts of a team server: users, roles, retention, backups.

Works while the server is running and while it is stopped.

Example:
  visualprof admin --logdir runs/ create-user ada@example.org --role admin
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import sqlite3
import sys
import time
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from visualprof.accounts.principal import Actor, Principal
from visualprof.cli._health import show_health
from visualprof.cli._server import Server
from visualprof.cli._server import add_arguments as add_server
from visualprof.errors import BadParameter, NotFound, VisualprofError
from visualprof.remote.queue.settings import QueueSettings
from visualprof.setting_options import add_options

if TYPE_CHECKING:
    from visualprof.accounts.service import Accounts
    from visualprof.remote.queue.job_services import JobServices
    from visualprof.remote.queue.store.database import Database

_NAMED = "SELECT sha256 FROM blobs UNION SELECT key FROM artefacts WHERE key LIKE 'runs/%'"
_NOTED = "INSERT INTO audit (at_ns, email, action, subject, address) VALUES (?, ?, 'backup', ?, '')"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one subcommand per task."""
    parser.add_argument("--logdir", default="", metavar="DIR", help="First log directory of the server.")
    parser.add_argument(
        "--data",
        default="",
        metavar="DIR",
        help="Folder where the server stores jobs, if it is not in the log directory.",
    )
    parser.add_argument("--config", metavar="FILE", help="The server's visualprof.toml, which names these folders.")
    add_options(parser, QueueSettings, ("database", "store"))
    tasks = parser.add_subparsers(dest="task", required=True, metavar="TASK")
    person = argparse.ArgumentParser(add_help=False)
    person.add_argument("email")
    create = tasks.add_parser("create-user", parents=[person], help="Create an account and ask for its password.")
    create.add_argument("--name", default="")
    create.add_argument("--role", choices=["viewer", "member", "admin"], default="member")
    create.add_argument(
        "--no-password",
        action="store_true",
        help="Create no password, because the proxy of --user-header logs the user in.",
    )
    grant = tasks.add_parser("grant", parents=[person], help="Change the role of a user, or unblock the user.")
    grant.add_argument("role", choices=["viewer", "member", "admin"])
    tasks.add_parser("revoke", parents=[person], help="Block a user. The user's runs and jobs stay.")
    tasks.add_parser(
        "set-password", parents=[person], help="Set a new password. This ends the user's sessions and tokens."
    )
    tasks.add_parser("list", help="List all accounts.")
    _add_retention(tasks.add_parser("retention", help="Show the retention rules, or set one."))
    health = tasks.add_parser(
        "health", help="Check a running server. Exits with 1 if there is a warning, for monitoring."
    )
    add_server(health)
    health.add_argument("--json", action="store_true", help="Print the answer as JSON.")
    backup = tasks.add_parser("backup", help="Copy the database, whether the server is running or not.")
    backup.add_argument("file", type=Path)
    migrate = tasks.add_parser("migrate", help="Downgrade the database to the schema of an earlier version.")
    migrate.add_argument(
        "schema", help=("Schema revision of that version, such as 0008. Data that the old schema cannot hold is lost.")
    )


def _add_retention(rule: argparse.ArgumentParser) -> None:
    rule.add_argument(
        "kind",
        nargs="?",
        choices=["jobs", "uploads", "notices", "audit"],
        help="Kind of data: jobs with their results, counted from the end of the job.",
    )
    rule.add_argument(
        "days",
        nargs="?",
        type=_days,
        help="Number of days, 'never', or 'others' to follow the general rule (with --project).",
    )
    rule.add_argument(
        "--project", default="", metavar="P", help="Apply the rule only to jobs shared with this project (name or id)."
    )
    rule.add_argument(
        "--yes",
        action="store_true",
        help="Set the rule. Without this option, only show what the rule would remove now.",
    )


def run(args: argparse.Namespace) -> int:
    """Run one task."""
    if args.task == "backup":
        if args.database:
            raise BadParameter("a backup of PostgreSQL is made by its own program", "pg_dump; see docs/operating.md")
        _backup(_folder(args) / "jobs.sqlite", args.file)
        return _missing(args.store, args.file) if args.store else 0
    if args.task == "migrate":
        _go_back(args)
        return 0
    if args.task == "health":
        return show_health(Server(args.server, args.token), args.json)
    from visualprof.accounts.audit import record_event

    actor = Actor(Principal(email=_shell(), role="admin", sees_all=True), "")
    if args.task == "retention":
        from visualprof.cli._rules import rules

        noted = partial(record_event, actor=actor, action="change retention")
        with _queue(args) as queue:
            return rules(queue, args.kind, args.days, args.project, args.yes, noted)
    with _accounts(args) as accounts:
        users = accounts.users
        if args.task == "create-user":
            users.create(actor, args.email, args.name, args.role, None if args.no_password else _password())
        elif args.task != "list":
            user = next((u for u in users.list_all() if u.email == args.email.strip().lower()), None)
            if user is None:
                raise NotFound(f"nobody has the address {args.email}", "visualprof admin list shows who is there")
            if args.task == "set-password":
                users.set_password(actor, user.id, _password())
            else:
                users.update(actor, user.id, role=getattr(args, "role", None), disabled=args.task == "revoke")
        for user in users.list_all():
            if args.task == "list" or user.email == args.email.strip().lower():
                print(f"{user.email:32} {'revoked' if user.disabled else user.role:8} {user.name}")
    return 0


def _folder(args: argparse.Namespace) -> Path:
    if not (args.logdir or args.data):
        raise BadParameter("whose accounts?", "name its folder or database: visualprof admin --logdir DIR ...")
    first = args.logdir if isinstance(args.logdir, str) else args.logdir[0]  # a config file lists several
    return Path(args.data) if args.data else Path(first) / ".visualprof"


def _go_back(args: argparse.Namespace) -> None:
    """Downgrade the database while no server runs. The next start of this version upgrades it again."""
    from visualprof.remote.queue.store.database import migrate

    with _database(args) as database:
        migrate(database, "the database", target=args.schema)


@contextlib.contextmanager
def _accounts(args: argparse.Namespace) -> Generator[Accounts]:
    from visualprof.accounts.service import Accounts

    with _database(args) as database:
        yield Accounts(database)


@contextlib.contextmanager
def _database(args: argparse.Namespace) -> Generator[Database]:
    from visualprof.remote.queue.store.postgresql import open_database

    file = Path() if args.database else _folder(args) / "jobs.sqlite"
    if not args.database:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(0o600)
    database = open_database(args.database, file)
    try:
        yield database
    finally:
        database.close()


@contextlib.contextmanager
def _queue(args: argparse.Namespace) -> Generator[JobServices]:
    """Open the queue next to a running server: leases are not revoked, and nothing is removed."""
    from visualprof.reader.logdir.scan import Root
    from visualprof.remote.queue.opening import open_services
    from visualprof.remote.queue.tasks.notifier import Notifier

    folder = _folder(args)
    first = args.logdir if isinstance(args.logdir, str) else args.logdir[0]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    root = Root(Path(first or folder.parent), "")
    queue = open_services(
        folder, root, QueueSettings(database=args.database), secret="", notifier=Notifier(1), read_only=True
    )
    try:
        yield queue
    finally:
        queue.close()


def _days(text: str) -> int | str:
    if text in ("never", "others"):
        return text
    days = int(text)
    if not 1 <= days <= 36_500:
        raise argparse.ArgumentTypeError("1 to 36500 days")
    return days


def _shell() -> str:
    """Return the user name for the audit log."""
    return f"{getpass.getuser()} in the shell"


def _password() -> str:
    """Read the password from the keyboard, twice, or as a line of standard input."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass("password: ")
    if getpass.getpass("again: ") != password:
        raise BadParameter("the two are not the same")
    return password


def _missing(store: str, copy: Path) -> int:
    """Print which uploaded files and run files of a backup are missing in the bucket."""
    from visualprof.remote.queue.store.bucket_url import parse_bucket_url
    from visualprof.remote.queue.store.s3 import Bucket
    from visualprof.remote.queue.store.signing import Signer

    place = parse_bucket_url(store)
    bucket = Bucket(Path(), Signer(b""), place, 0)
    stored = bucket.run_files().union(bucket.list_names("blobs"))
    with contextlib.closing(sqlite3.connect(copy)) as database:
        named = {name for (name,) in database.execute(_NAMED)}
    lost = sorted(named.difference(stored))
    print(f"{len(named) - len(lost)} of {len(named)} files are in {place}; it needs a backup of its own")
    for name in lost:
        print(f"missing: {name}", file=sys.stderr)
    return 1 if lost else 0


def _backup(source: Path, target: Path) -> None:
    """Copy the database.

    Raises:
        VisualprofError: There is no database, or the target exists.
    """
    if not source.is_file():
        raise NotFound(f"there is no {source}")
    if target.exists():
        raise BadParameter(f"{target} is there already", "choose a new name")
    try:
        target.touch(0o600, exist_ok=False)  # the copy holds password hashes: no one else may open it, even half-way
    except OSError as error:
        raise BadParameter(
            f"{target} cannot be written: {error.strerror}", "name a file in an existing folder"
        ) from None
    with contextlib.closing(sqlite3.connect(source)) as database, contextlib.closing(sqlite3.connect(target)) as copy:
        try:
            database.backup(copy)
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit'").fetchone():
                with database:
                    database.execute(_NOTED, (time.time_ns(), _shell(), str(target)[:400]))
        except sqlite3.Error as error:
            target.unlink(missing_ok=True)
            raise VisualprofError(f"{source} cannot be copied: {error}") from error
    target.chmod(0o600)
