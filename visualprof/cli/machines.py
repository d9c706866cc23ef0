"""Lists the machines that measure for a server, and says which of them get tasks.

visualprof machines               every machine
visualprof machines drain NAME    gets no further task; what it is doing goes on
visualprof machines out NAME      put out: what it is doing goes to others, and it is refused
visualprof machines work NAME     gets tasks again
visualprof machines remove NAME   forgotten, when it is offline or put out
visualprof machines new-token     another registration token; machines that are registered stay
"""

from __future__ import annotations

import argparse
import json
import shutil
import urllib.parse
from typing import TYPE_CHECKING

from visualprof.cli import _server
from visualprof.cli._server import Json, Server
from visualprof.cli._watch import plain
from visualprof.errors import NotFound

if TYPE_CHECKING:
    from visualprof.views.answers.kinds import Kind

SHOWN: dict[str, Kind] = {
    "name": "name", "id": "name", "standing": "name", "online": "flag", "platform": "name", "cpu": "name",
    "runtimes": "text",
}  # fmt: skip
STANDINGS = {"drain": "drained", "out": "out", "work": "works"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    _server.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    for name, what in (
        ("drain", "give it no further task"),
        ("out", "put it out: its task goes to others, and it is refused"),
        ("work", "give it tasks again"),
        ("remove", "forget one that is offline or put out"),
    ):
        actions.add_parser(name, help=what).add_argument("machine", metavar="NAME", help="name or id")
    actions.add_parser("new-token", help="make another registration token; registered machines stay")


def run(args: argparse.Namespace) -> int:
    """Lists the machines, after a change that was asked for."""
    server = Server(args.server, args.token)
    answer = server.get("agents")
    if args.action == "new-token":
        answer = server.post("agents/token")
    elif args.action:
        path = f"agents/{urllib.parse.quote(_named(answer['agents'], args.machine), safe='')}"
        standing = STANDINGS.get(args.action)
        answer = server.send("PATCH", path, {"standing": standing}) if standing else server.send("DELETE", path)
    if args.json:
        print(json.dumps(answer))
    elif args.action == "new-token":
        print(answer["command"])
    else:
        _print(answer["agents"])
    return 0


def _named(agents: list[Json], name: str) -> str:
    """The id of a machine. Raises: NotFound: none, or several have that name."""
    found = [agent["id"] for agent in agents if name in (agent["id"], agent["name"])]
    if len(found) != 1:
        names = ", ".join(f"{plain(agent['name'])} ({agent['id']})" for agent in agents) or "none"
        raise NotFound(f"{len(found) or 'no'} machine{'s' if found else ''} called {name!r}", f"there is {names}")
    return found[0]


def _print(agents: list[Json]) -> None:
    from visualprof.cli._terminal import render
    from visualprof.views.answers.table import Table

    rows = [_row(agent) for agent in agents]
    columns = {name: [row[name] for row in rows] for name in SHOWN}
    print(render(Table(columns=columns, kinds=SHOWN), "", shutil.get_terminal_size().columns, len(rows)), end="")


def _row(agent: Json) -> Json:
    has: Json = agent["capabilities"]
    runtimes = ", ".join(f"{plain(one['backend'])} {plain(one['version'])}" for one in has["runtimes"])
    texts = {name: plain(agent[name]) for name in ("name", "id", "standing")}
    machine = {"platform": plain(has["platform"]), "cpu": plain(has["cpu"]), "runtimes": runtimes}
    return {**texts, "online": agent["online"], **machine}
