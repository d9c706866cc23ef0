"""Print the health of a server, for people and for monitoring."""

from __future__ import annotations

import json
import time

from visualprof.cli._server import Json, Server
from visualprof.cli._watch import plain


def show_health(server: Server, as_json: bool) -> int:
    """Print the health of the server; return 1 if there is a warning."""
    health = server.get("health")
    if as_json:
        print(json.dumps(health))
    else:
        for name, text in _facts(health):
            print(f"{name:10} {text}")
        for warning in health["warnings"]:
            print(f"warning: {plain(warning['error'])} ({plain(warning['hint'])})")
    return 1 if health["warnings"] else 0


def _facts(health: Json) -> list[tuple[str, str]]:
    queue, machines, processes, answers = (health[name] for name in ("queue", "machines", "processes", "answers"))
    database = health["database"]
    facts = [("server", f"visualprof {health['version']}, started {_time(health['started_ns'])}")]
    if database:
        size = "" if database["size_bytes"] is None else f", {database['size_bytes'] / 1e6:,.1f} MB"
        took = f"{database['round_trip_ns'] / 1e6:.1f} ms"
        facts.append(("database", f"{database['kind']}{size}, schema {database['schema']}, answers in {took}"))
    for disk in health["disks"]:
        used = "" if disk["used_bytes"] is None else f", {disk['used_bytes'] / 1e9:,.2f} GB used by visualprof"
        free = f"{disk['free_bytes'] / 1e9:,.1f} of {disk['total_bytes'] / 1e9:,.1f} GB free"
        facts.append((disk["place"], f"{plain(disk['path'])}: {free}{used}"))
    if queue:
        oldest = f", since {_time(queue['oldest_ns'])}" if queue["oldest_ns"] else ""
        facts.append(("jobs", f"{queue['running']} running, {queue['waiting']} waiting{oldest}"))
    facts.append(("machines", f"{machines['online']} of {machines['registered']} online"))
    load = "" if processes["load"] is None else f", load {processes['load']:.1f} on {processes['cores']} processors"
    facts.append(("files", f"{processes['reading']} being read, {processes['unread']} waiting"))
    memory = (processes["server_bytes"] + processes["children_bytes"]) / 1e6
    facts.append(("memory", f"{memory:,.0f} MB in {1 + processes['children']} processes{load}"))
    p95 = "" if answers["p95_ns"] is None else f", 95 % within {answers['p95_ns'] / 1e6:,.0f} ms"
    failed = f"{answers['failed']} failed"
    facts.append(("answers", f"{answers['count']:,} in {answers['window_s'] // 60} minutes{p95}, {failed}"))
    if health["backup_ns"]:
        facts.append(("backup", _time(health["backup_ns"])))
    return facts


def _time(at_ns: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_ns / 1e9))
