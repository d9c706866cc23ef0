"""List the machines that measure for a server, and control which of them get tasks, and for whom.

Examples:
  visualprof machines               list all machines
  visualprof machines drain NAME    assign no further tasks; running tasks continue
  visualprof machines out NAME      block the machine; its running tasks are reassigned
  visualprof machines work NAME     assign tasks again
  visualprof machines remove NAME   delete a machine that is offline or blocked
  visualprof machines new-token     rotate the registration token; registered machines stay

On a server with accounts:
  visualprof machines enrol                                  create a command by which one machine joins (ten minutes)
  visualprof machines grant NAME [EMAIL] [--project P]       let others use a private machine; revoke undoes it
  visualprof machines public NAME                            let every user use it; private: only its owner and grantees
  visualprof machines reserve NAME EMAIL --until T           reserve it for one user, from --from T or from now
  visualprof machines maintain NAME --until T                assign no tasks during that time
  visualprof machines free NAME [ID]                         end its booking; ID chooses one of several
"""

from __future__ import annotations

import argparse
import json
import shutil
import urllib.parse
from datetime import datetime
from typing import TYPE_CHECKING

from visualprof.cli import _server
from visualprof.cli._server import Json, Server
from visualprof.cli._watch import plain
from visualprof.errors import BadParameter, NotFound

if TYPE_CHECKING:
    from visualprof.views.answers.kinds import Kind

SHOWN: dict[str, Kind] = {
    "name": "name",
    "id": "name",
    "standing": "name",
    "online": "flag",
    "platform": "name",
    "cpu": "name",
    "runtimes": "text",
}
CHANGES: dict[str, Json] = {
    "drain": {"standing": "drained"},
    "out": {"standing": "out"},
    "work": {"standing": "works"},
    "public": {"public": True},
    "private": {"public": False},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    _server.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="Print the answer as JSON.")
    action = _server.actions_of(parser)
    for name, summary in (
        ("drain", "Assign no further tasks; running tasks continue."),
        ("out", "Block the machine; its running tasks are reassigned."),
        ("work", "Assign tasks again."),
        ("remove", "Delete a machine that is offline or blocked."),
        ("public", "Let every user use it."),
        ("private", "Let only its owner and grantees use it."),
        ("grant", "Let a user or a project use a private machine."),
        ("revoke", "Withdraw a grant."),
        ("reserve", "Reserve it for one user."),
        ("maintain", "Assign no tasks during a maintenance window."),
        ("free", "End its booking."),
    ):
        command = action(name, help=summary)
        command.add_argument("machine", metavar="NAME", help="Name or id of the machine.")
        if name in ("grant", "revoke", "reserve"):
            command.add_argument("email", metavar="EMAIL", nargs=None if name == "reserve" else "?", default="")
        if name in ("grant", "revoke"):
            command.add_argument("--project", metavar="P", default="", help="Name or id of the project.")
        if name in ("reserve", "maintain"):
            command.add_argument(
                "--from", dest="begin", type=_time, metavar="T", help="Start of the booking (default: now)."
            )
            command.add_argument(
                "--until", type=_time, metavar="T", required=True, help="End of the booking, such as 2026-11-23T18:00."
            )
        if name == "free":
            command.add_argument("booking", metavar="ID", nargs="?", default="", help="Id of the booking.")
    action("enrol", help="Create a command by which one machine joins (needs accounts).")
    action("new-token", help="Rotate the registration token. Registered machines stay registered.")


def run(args: argparse.Namespace) -> int:
    """Apply the requested change, then list the machines."""
    server = Server(args.server, args.token)
    commands = {"new-token": "agents/token", "enrol": "agents/codes"}
    if args.action in commands:
        answer = server.post(commands[args.action])
    else:
        answer = server.get("agents")
        if args.action:
            answer = _changed(server, _row_named(answer["agents"], args.machine, "machine"), args)
    if args.json:
        print(json.dumps(answer))
    elif args.action in commands:
        print(answer["command"])
    else:
        _print(answer["agents"])
    return 0


def _changed(server: Server, agent: Json, args: argparse.Namespace) -> Json:
    """Return the answer to a change of a machine."""
    path, action = f"agents/{urllib.parse.quote(agent['id'], safe='')}", args.action
    if action in CHANGES:
        return server.send("PATCH", path, CHANGES[action])
    if action == "grant":
        project = _project(server, args.project)["id"] if args.project else ""
        return server.post(f"{path}/grants", {"email": args.email, "project": project})
    if action == "revoke":
        holders = [{**grant, "id": grant["holder"]} for grant in agent["grants"]]
        return server.send("DELETE", f"{path}/grants/{_row_named(holders, args.email or args.project, 'grant')['id']}")
    if action in ("reserve", "maintain"):
        begin = args.begin or datetime.now().astimezone()
        times = {"from_ns": _ns(begin), "until_ns": _ns(args.until)}
        return server.post(f"{path}/bookings", {**times, "email": args.email if action == "reserve" else ""})
    if action == "free":
        bookings = [{**booking, "name": booking["id"] if args.booking else ""} for booking in agent["bookings"]]
        return server.send("DELETE", f"{path}/bookings/{_row_named(bookings, args.booking, 'booking')['id']}")
    return server.send("DELETE", path)


def _project(server: Server, name: str) -> Json:
    return _row_named(server.get("projects")["projects"], name, "project")


def _row_named(rows: list[Json], name: str, noun: str) -> Json:
    """Return the row with this id or name.

    Raises:
        NotFound: No row, or several rows, have this name.
    """
    matches = [row for row in rows if name in (row["id"], row["name"])]
    if len(matches) != 1:
        names = ", ".join(f"{plain(row['name'])} ({row['id']})" for row in rows) or "none"
        raise NotFound(
            f"{len(matches) or 'no'} {noun}{'s' if len(matches) > 1 else ''} called {name!r}", f"there is {names}"
        )
    return matches[0]


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()  # without a time zone: the local one
    except ValueError:
        raise BadParameter(f"{text!r} is no time", "it looks like 2026-11-23T18:00") from None


def _ns(when: datetime) -> int:
    return int(when.timestamp()) * 10**9


def _print(agents: list[Json]) -> None:
    from visualprof.cli._terminal import render
    from visualprof.views.answers.table import Table

    rows = [_row(agent) for agent in agents]
    columns = {name: [row[name] for row in rows] for name in SHOWN}
    print(render(Table(columns=columns, kinds=SHOWN), "", shutil.get_terminal_size().columns, len(rows)), end="")
    for agent in agents:
        for booking in agent["bookings"]:
            print(f"{plain(agent['name'])}: {_booked(booking)}")


def _row(agent: Json) -> Json:
    has: Json = agent["capabilities"]
    runtimes = ", ".join(f"{plain(runtime['backend'])} {plain(runtime['version'])}" for runtime in has["runtimes"])
    texts = {name: plain(agent[name]) for name in ("name", "id", "standing")}
    machine = {"platform": plain(has["platform"]), "cpu": plain(has["cpu"]), "runtimes": runtimes}
    return {**texts, "online": agent["online"], **machine}


def _booked(booking: Json) -> str:
    whom = "maintenance" if booking["kind"] == "maintenance" else f"for {plain(booking['email'] or 'somebody else')}"
    begin, end = (
        datetime.fromtimestamp(booking[name] // 10**9).strftime("%Y-%m-%d %H:%M") for name in ("from_ns", "until_ns")
    )
    return f"{whom} {begin} to {end} ({plain(booking['id'])})"
