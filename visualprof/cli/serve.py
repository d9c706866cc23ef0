"""Open the dashboard over log directories (the default command).

Example:
  visualprof --logdir runs/ --port 8040
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from visualprof.cli._paths import page_of, require
from visualprof.errors import BadParameter, UnsafeUser
from visualprof.log_lines import configure_logging
from visualprof.server.settings import GROUPS, AccessSettings, Settings, WebSettings
from visualprof.setting_options import add_options

_SHARED = ("host", "language", "private")  # options that `demo` also has
_PORTS = 100  # tried in order
_NEXT = """visualprof: what shall it show?
  visualprof demo                  sample runs, without files of your own
  visualprof runs/                 all profiles and models in a folder
  visualprof trace.json            one profile; a model likewise: model.onnx
  visualprof view overview FILE    the same numbers in the shell
  visualprof --help                all commands and options"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the server."""
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
    parser.add_argument("--create", action="store_true", help="Create missing folders and wait for profiles.")
    add_server_arguments(parser)
    for group in GROUPS.values():
        add_options(parser, group, leave_out=_SHARED)
    queries = parser.add_mutually_exclusive_group()
    queries.add_argument("--no-queries", action="store_true", help="Do not let users query runs in SQL.")
    queries.add_argument(
        "--allow-queries",
        action="store_true",
        help="Run SQL queries of accounts even if the kernel cannot confine them (Landlock).",
    )
    parser.add_argument(
        "--allow-root",
        action="store_true",
        help="Let that agent run as root, for example in a disposable container (default: refuse).",
    )


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `demo` shares."""
    add_options(parser, WebSettings, ("host", "language"))
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
    add_options(keys, AccessSettings, ("private",))
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
    if args.user_header and not (args.accounts and args.proxies):
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
    queries = "off" if args.no_queries else "on" if args.allow_queries else "auto"
    settings = Settings.from_options({**vars(args), "token": token_of(args), "queries": queries})
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

    Raises: UnsafeUser.
    """
    from visualprof.remote.agent.command import ALLOW_ROOT_VARIABLE, runs_as_root

    if allow_root:
        os.environ[ALLOW_ROOT_VARIABLE] = "1"
    elif runs_as_root() and os.environ.get(ALLOW_ROOT_VARIABLE) != "1":
        raise UnsafeUser(
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
    settings: Settings,
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
                if settings.queue.database
                else f"--data {settings.queue.data}"
                if settings.queue.data
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


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("a port is a number from 0 to 65535")
    return port
