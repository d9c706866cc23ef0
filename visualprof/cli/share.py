"""Create a link that shows one run or report without an account until it expires.

RUN is the id in the address of the run's page. The Share menu lists and ends links.

Example:
  visualprof share RUN --days 7
"""

from __future__ import annotations

import argparse

from visualprof.cli import _server
from visualprof.cli._server import Server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    _server.add_arguments(parser)
    parser.add_argument("run", metavar="RUN", help="Id of a run or report.")
    parser.add_argument(
        "--days",
        type=float,
        default=7.0,
        metavar="N",
        help="Days until the link expires, at most 90 (default: %(default)g).",
    )


def run(args: argparse.Namespace) -> int:
    """Print the link."""
    server = Server(args.server, args.token)
    print(server.url + server.post("links", {"run": args.run, "hours": args.days * 24})["path"])
    return 0
