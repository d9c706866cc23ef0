"""Open the dashboard over log directories (the default command).

Example:
  visualprof --logdir runs/ --port 8040
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from visualprof.cli._paths import page_of, require
from visualprof.errors import BadParameter
from visualprof.log_lines import configure_logging
from visualprof.remote.queue.store.bucket_url import DEFAULT_CACHE_BYTES, parse_bucket_url

# Not on the command line, which every user of the machine can read, but in a variable or in the config file.
SECRETS = {"smtp_password": "VISUALPROF_SMTP_PASSWORD", "oidc_secret": "VISUALPROF_OIDC_SECRET"}
_PORTS = 100  # tried in order
_NEXT = """visualprof: what shall it show?
  visualprof demo                  sample runs, without files of your own
  visualprof runs/                 all profiles and models in a folder
  visualprof trace.json            one profile; a model likewise: model.onnx
  visualprof view overview FILE    the same numbers in the shell
  visualprof --help                all commands and options"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the server."""
    parser.set_defaults(**{name: os.environ.get(variable, "") for name, variable in SECRETS.items()})
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="Folders with profiles and models, s3://bucket/runs, or one file to open.",
    )
    parser.add_argument(
        "--logdir", nargs="+", action="extend", default=[], metavar="DIR", help="Same as the positional PATH arguments."
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=("Read these options from a visualprof.toml. Options on the command line take precedence."),
    )
    parser.add_argument(
        "--follow-links",
        action="store_true",
        help="Also show targets of links out of the log directories (default: list them as skipped).",
    )
    parser.add_argument("--create", action="store_true", help="Create missing folders and wait for profiles.")
    add_server_arguments(parser)
    parser.add_argument("--read-only", action="store_true", help="Reject every request that would change something.")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help=(
            "Additional host name that browsers may use for this server, for example behind a proxy; * "
            "allows any; repeatable."
        ),
    )
    parser.add_argument(
        "--embed-in",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="Origin of a page that may show the dashboard in a frame; repeatable.",
    )
    _add_team_arguments(parser)
    queries = parser.add_mutually_exclusive_group()
    queries.add_argument("--no-queries", action="store_true", help="Do not let users query runs in SQL.")
    queries.add_argument(
        "--allow-queries",
        action="store_true",
        help="Run SQL queries of accounts even if the kernel cannot confine them (Landlock).",
    )
    add_engine(parser)
    parser.add_argument("--with-agent", action="store_true", help="Also run jobs on this machine.")
    parser.add_argument(
        "--allow-root",
        action="store_true",
        help="Let that agent run as root, for example in a disposable container (default: refuse).",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="Folder where jobs are stored (default: .visualprof in the first log directory).",
    )
    add_database(parser)
    add_store(parser)
    parser.add_argument(
        "--store-cache",
        type=_gigabytes,
        default=DEFAULT_CACHE_BYTES / 1e9,
        metavar="GB",
        help="Size limit of the local cache of the store's files, in GB (default: %(default)g).",
    )
    parser.add_argument(
        "--store-runs",
        action="store_true",
        help=(
            "Also keep the runs that jobs produce in the store. The log directory then holds only recently used runs."
        ),
    )
    parser.add_argument(
        "--lease",
        type=_seconds,
        default=30.0,
        metavar="S",
        help=(
            "Consider an agent lost after S seconds without a heartbeat; other intervals are derived from "
            "it (default: %(default)g)."
        ),
    )


def _add_team_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for accounts, proxies and notifications."""
    parser.add_argument("--accounts", action="store_true", help="Require users to log in. See `visualprof admin`.")
    parser.add_argument(
        "--registration",
        choices=["open", "invitation", "off"],
        default="invitation",
        help="Who may create an account, with --accounts (default: %(default)s).",
    )
    parser.add_argument(
        "--base-url", type=_address, metavar="URL", help="Address by which browsers reach this server through a proxy."
    )
    parser.add_argument(
        "--trust-proxy",
        type=_network,
        action="append",
        default=[],
        metavar="CIDR",
        help="Network of the proxy whose X-Forwarded-For header is trusted; repeatable.",
    )
    parser.add_argument(
        "--user-header", metavar="NAME", help="Header in which the proxy names the logged-in user, with --accounts."
    )
    parser.add_argument(
        "--oidc",
        type=_issuer,
        metavar="URL",
        help="OpenID Connect issuer by which users can log in, with --accounts.",
    )
    parser.add_argument("--oidc-client", metavar="ID", help="Client id of this server at the issuer.")
    parser.add_argument(
        "--oidc-admin-group", metavar="NAME", help="Group of the issuer whose members are administrators."
    )
    parser.add_argument(
        "--smtp",
        type=_mail_server,
        metavar="URL",
        help="Mail server for notifications and invitations, such as smtps://user@mail.example.org.",
    )
    parser.add_argument(
        "--mail-from", metavar="ADDRESS", help="Sender address of e-mail (default: the user of --smtp)."
    )
    parser.add_argument(
        "--webhook-network",
        type=_network,
        action="append",
        default=[],
        metavar="CIDR",
        help="Private network to which users may send notifications; repeatable.",
    )
    parser.add_argument(
        "--slower",
        type=_percent,
        default=5.0,
        metavar="PERCENT",
        help="Notify owners of a regression larger than PERCENT (default: %(default)g %%).",
    )


def add_database(parser: argparse.ArgumentParser) -> None:
    """Add the database option, which `admin` shares. A password is safer in the environment variable."""
    parser.add_argument(
        "--database",
        default=os.environ.get("VISUALPROF_DATABASE", ""),
        metavar="URL",
        help=(
            "PostgreSQL address, such as postgresql+psycopg://user@host/name (default: "
            "VISUALPROF_DATABASE, else an SQLite file)."
        ),
    )


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the store option, which `admin` shares. Credentials come from the environment."""
    parser.add_argument(
        "--store",
        type=_store,
        metavar="URL",
        help=(
            "Bucket for uploads and results, such as s3://bucket/prefix?endpoint=https://... (default: "
            "files in --data)."
        ),
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add the option for the engine that parses files, which `index` shares."""
    parser.add_argument(
        "--engine",
        default="processes",
        metavar="E",
        help=(
            "What parses profile files: processes (of this machine), ray, ray://head:10001, dask or "
            "tcp://host:8786 (default: %(default)s)."
        ),
    )


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `demo` shares."""
    parser.add_argument(
        "--host", default="127.0.0.1", help="Address to listen on (default: %(default)s, this machine only)."
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=8040,
        help="Port to listen on, or the next free one; 0 chooses any (default: %(default)s).",
    )
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument(
        "--no-token",
        action="store_true",
        help=(
            "Let every client that reaches this server change data (default: require the token in the "
            "printed link; set it with VISUALPROF_TOKEN)."
        ),
    )
    keys.add_argument("--private", action="store_true", help="Require the token for read requests as well.")
    parser.add_argument(
        "--language", choices=["en", "zh"], default="", help="Language of the web UI (default: the browser's)."
    )
    browser = parser.add_mutually_exclusive_group()
    browser.add_argument("--open", action="store_true", help="Open the dashboard in the browser.")
    browser.add_argument("--no-browser", action="store_true", help="Do not open the browser (this is the default).")


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    paths = [*args.paths, *args.logdir]
    if not paths:
        print(_NEXT, file=sys.stderr)
        return 2
    require(paths, args.create)
    if args.accounts and args.read_only:
        raise BadParameter("--accounts need to be written: sessions are kept", "leave --read-only out")
    if args.accounts and args.follow_links:
        raise BadParameter(
            "--follow-links would let every member who can write a link read any file of the server",
            "leave one of --accounts and --follow-links out, and name the folders as log directories",
        )
    if args.user_header and not (args.accounts and args.trust_proxy):
        raise BadParameter("--user-header is a claim that anybody could make", "name the proxy: --trust-proxy CIDR")
    if args.oidc and not (args.accounts and args.base_url and args.oidc_client):
        hint = "--accounts --base-url https://dash.example.org --oidc-client ID"
        raise BadParameter("--oidc needs accounts, an address to come back to, and what the issuer calls us", hint)
    if args.oidc and args.user_header:
        raise BadParameter("--oidc and --user-header log people in", "leave one of them out")
    if args.store_runs and not args.store:
        raise BadParameter("--store-runs needs a store", "name it: --store s3://bucket/prefix?endpoint=https://...")
    if args.with_agent:
        _check_user(args.allow_root)
    from visualprof.server.settings import Settings

    settings = Settings(
        language=args.language,
        read_only=args.read_only,
        host=args.host,
        allowed_hosts=tuple(args.allow_host),
        embedded_in=tuple(args.embed_in),
        engine=args.engine,
        data=Path(args.data) if args.data else None,
        database=args.database,
        store=parse_bucket_url(args.store) if args.store else None,
        store_runs=args.store_runs,
        cache_bytes=int(args.store_cache * 1e9),
        follow_links=args.follow_links,
        with_agent=args.with_agent,
        lease_s=args.lease,
        token=token_of(args),
        private=args.private,
        accounts=args.accounts,
        registration=args.registration,
        base_url=args.base_url or "",
        proxies=tuple(args.trust_proxy),
        user_header=args.user_header or "",
        oidc=args.oidc or "",
        oidc_client=args.oidc_client or "",
        oidc_secret=args.oidc_secret,
        oidc_admin_group=args.oidc_admin_group or "",
        smtp=args.smtp or "",
        smtp_password=args.smtp_password,
        mail_from=args.mail_from or "",
        webhook_networks=tuple(args.webhook_network),
        regression_threshold=args.slower / 100,
        queries="off" if args.no_queries else "on" if args.allow_queries else "auto",
    )
    page = ""
    if len(paths) == 1 and (file := Path(paths[0])).is_file():
        file = file if args.follow_links else _inside_its_folder(file)
        paths, page = [str(file.parent)], page_of(file)
    return serve(paths, args.port, settings, args.open and not args.no_browser, page=page)


def _inside_its_folder(file: Path) -> Path:
    """Return the file, or its target if the file is a link out of its folder, which is not followed."""
    target = file.resolve()
    return file if target.is_relative_to(file.parent.resolve()) else target


def _check_user(allow_root: bool) -> None:
    """Refuse an agent that would run as root, or allow it for the process that is started.

    Raises: BadParameter.
    """
    from visualprof.remote.agent.command import ALLOW_ROOT_VARIABLE, runs_as_root

    if allow_root:
        os.environ[ALLOW_ROOT_VARIABLE] = "1"
    elif runs_as_root() and os.environ.get(ALLOW_ROOT_VARIABLE) != "1":
        raise BadParameter(
            "--with-agent does not run as root, because the code of a model could then change this machine",
            "start the server as its own user, or add --allow-root in a disposable container",
        )


def token_of(args: argparse.Namespace) -> str:
    """Return the session token, "" if it is not wanted or there is nothing to protect."""
    from visualprof.server.session_token import choose_token

    if getattr(args, "accounts", False):  # users have sessions instead
        return ""
    guards = args.private or not getattr(args, "read_only", False)
    return choose_token() if guards and not args.no_token else ""


def serve(
    paths: list[str],
    port: int,
    settings: object,
    open_page: bool,
    then: Callable[[str], object] | None = None,
    page: str = "",
) -> int:
    """Run a server in the foreground and print its address.

    Args:
        then: Called with the address, in a thread.
        page: Fragment of the address to open first.
    """
    from visualprof.cli._start import imports
    from visualprof.server.settings import Settings

    assert isinstance(settings, Settings)
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # as Ctrl-C: children stop and temporary files are removed
    configure_logging()
    with imports():
        from visualprof.server.serve import Server

        new_server = Server(paths, port, settings, ports=_PORTS)
    with new_server as server:
        if port not in (0, server.port):
            print(f"visualprof: port {port} is in use, {server.port} is taken instead", file=sys.stderr)
        print(f"visualprof shows {', '.join(paths)} at {server.page_url(page)}  (Ctrl-C ends it)", flush=True)
        if server.needs_first_user:
            hint = (
                "--database URL"
                if settings.database
                else f"--data {settings.data}"
                if settings.data
                else f"--logdir {paths[0]}"
            )
            print(f"nobody has an account yet: visualprof admin {hint} create-user you@example.org --role admin")
        if open_page:
            import webbrowser

            webbrowser.open(server.page_url(page))
        if then:
            threading.Thread(target=then, args=(server.url,), daemon=True).start()
        try:
            server.run()
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return 0


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.5 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("a lease is 0.5 to 3600 seconds")
    return seconds


def _gigabytes(text: str) -> float:
    size = float(text)
    if not 0.001 <= size <= 1e6:
        raise argparse.ArgumentTypeError("a cache has 0.001 to 1,000,000 GB")
    return size


def _store(text: str) -> str:
    try:
        parse_bucket_url(text)
    except BadParameter as error:
        raise argparse.ArgumentTypeError(f"{error.error}; {error.hint}") from error
    return text


def _percent(text: str) -> float:
    percent = float(text)
    if not 0 <= percent <= 1000:
        raise argparse.ArgumentTypeError("0 to 1000 percent")
    return percent


def _address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise argparse.ArgumentTypeError("an address is like https://dash.example.org")
    return text.rstrip("/")


def _issuer(text: str) -> str:
    """Return the issuer's address exactly as the issuer names itself; it may end with a slash."""
    parts = urlsplit(text)
    schemes = ("https", "http") if parts.hostname in ("localhost", "127.0.0.1", "::1") else ("https",)
    if parts.scheme not in schemes or not parts.netloc or parts.query:
        raise argparse.ArgumentTypeError("an issuer is like https://login.example.org/realms/lab")
    return text


def _mail_server(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or parts.password:
        raise argparse.ArgumentTypeError("it is like smtps://user@mail.example.org; its password is asked elsewhere")
    return text


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError as error:
        raise argparse.ArgumentTypeError("a network is like 10.0.0.0/8") from error


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return port
