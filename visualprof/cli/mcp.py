"""Let assistants query profiles: a read-only server of the Model Context Protocol, over stdio or HTTP.

Example:
  visualprof mcp runs/
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from visualprof.cli._paths import require
from visualprof.errors import BadParameter, VisualprofError
from visualprof.log_lines import configure_logging

if TYPE_CHECKING:
    from visualprof.reader.cache import Cache

_PORT = 8042


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("paths", nargs="*", metavar="PATH", help="Folders with profiles and models, or one file.")
    parser.add_argument(
        "--logdir", nargs="+", action="extend", default=[], metavar="DIR", help="Same as the positional PATH arguments."
    )
    parser.add_argument(
        "--server", default="", metavar="URL", help="Dashboard over the same folders, to whose pages the answers link."
    )
    parser.add_argument("--http", action="store_true", help="Listen on HTTP (path /mcp) instead of stdio.")
    parser.add_argument(
        "--host", default="127.0.0.1", help="Address to listen on (default: %(default)s, this machine only)."
    )
    parser.add_argument(
        "--port", type=int, default=_PORT, help="Port to listen on; 0 chooses a free one (default: %(default)s)."
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="Additional host name that clients may use; repeatable.",
    )
    parser.add_argument(
        "--no-token",
        action="store_true",
        help=("Answer every client without a token (default: print a token; set it with VISUALPROF_TOKEN)."),
    )


def run(args: argparse.Namespace) -> int:
    """Serve until the client disconnects or the process is interrupted."""
    paths = [*args.paths, *args.logdir]
    if not paths:
        raise BadParameter("which profiles?", "name a folder: visualprof mcp runs/")
    if not 0 <= args.port <= 65535:
        raise BadParameter(f"--port {args.port} is no port", "0 to 65535")
    if args.server and not args.server.startswith(("http://", "https://")):
        raise BadParameter(f"--server {args.server!r} is no address", "for example http://localhost:8040")
    require(paths, create=False)
    configure_logging()
    protocol, transports = _imported()
    from visualprof.mcp.dashboard import Dashboard

    with ExitStack() as resources:
        dashboard = Dashboard(paths, _cache(resources))
        resources.callback(dashboard.close)
        server = protocol.make_server(dashboard, args.server)
        if args.http:
            _serve_http(args, transports, server)
        else:
            _end_at_signals(resources)
            transports.serve_stdio(server)
    return 0


def _imported() -> tuple[ModuleType, ModuleType]:
    """Import the modules for the protocol and its transports.

    Raises:
        VisualprofError: Their package is missing or has another version.
    """
    from visualprof.cli._start import imports

    try:
        with imports():
            from visualprof.mcp import protocol, transports
    except ImportError as error:
        package = (error.name or "visualprof").partition(".")[0]
        if package == "visualprof":
            raise
        state = "not installed" if isinstance(error, ModuleNotFoundError) else "of another version"
        raise VisualprofError(f"the package {package!r} is {state}", "pip install 'visualprof[mcp]'") from error
    return protocol, transports


def _serve_http(args: argparse.Namespace, transports: ModuleType, server: object) -> None:
    """Serve over HTTP, and print the address and the token."""
    from visualprof.server.session_token import choose_token

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that children stop and temporary files are removed
    token = "" if args.no_token else choose_token()
    with transports.listen(args.host, args.port) as bound:
        name = f"[{bare}]" if ":" in (bare := args.host.strip("[]")) else bare
        address = f"http://{name}:{bound.getsockname()[1]}{transports.MCP_PATH}"
        shown = f"; send Authorization: Bearer {token}" if token else ""
        print(f"visualprof answers assistants at {address}{shown}  (Ctrl-C ends it)", file=sys.stderr, flush=True)
        transports.serve_http(server, bound, token, [name, *args.allow_host])


def _end_at_signals(resources: ExitStack) -> None:
    """Exit at signals without waiting for the thread that reads standard input."""

    def end(number: int, _: object) -> None:
        resources.close()
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _cache(resources: ExitStack) -> Cache:
    """Return the cache of the dashboard, or a temporary one if that cannot be written."""
    from visualprof.reader.cache import Cache

    cache = Cache.default()
    if cache.is_writable():
        return cache
    folder = tempfile.TemporaryDirectory(prefix="visualprof-", ignore_cleanup_errors=True)
    return Cache(Path(resources.enter_context(folder)), cache.max_bytes)
