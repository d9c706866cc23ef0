"""List the jobs of a server, cancel jobs, or delete finished jobs and their results.

Examples:
  visualprof jobs                          list all jobs, newest first
  visualprof jobs cancel ID [ID...]        stop jobs that wait or run
  visualprof jobs remove ID [ID...]        delete jobs, and show the disk space that each frees
  visualprof jobs remove --older-than 30   delete jobs that ended more than 30 days ago
  visualprof jobs keep ID [ID...]          exempt jobs from the retention rules; --no-more undoes this
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
import urllib.parse
from typing import TYPE_CHECKING

from visualprof.cli import _server
from visualprof.cli._server import Json, Server
from visualprof.cli._watch import FINAL, plain, waits_for
from visualprof.errors import BadParameter

if TYPE_CHECKING:
    from visualprof.views.answers.kinds import Kind

SHOWN: dict[str, Kind] = {
    "id": "name",
    "name": "name",
    "model": "name",
    "state": "name",
    "submitted": "name",
    "specs": "count",
    "points": "count",
    "note": "text",
}
DAY_NS = 24 * 3600 * 10**9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    _server.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="Print the answers as JSON.")
    action = _server.actions_of(parser)
    cancel = action("cancel", help="Stop jobs that wait or run; the results so far are kept.")
    cancel.add_argument("jobs", nargs="+", metavar="ID", help="Ids of jobs.")
    remove = action("remove", help="Delete jobs and their results.")
    remove.add_argument("jobs", nargs="*", metavar="ID", help="Ids of jobs that have ended.")
    remove.add_argument(
        "--older-than", type=float, metavar="DAYS", help="Delete the jobs that ended more than DAYS days ago."
    )
    keep = action("keep", help="Exempt jobs from the server's retention rules.")
    keep.add_argument("jobs", nargs="+", metavar="ID")
    keep.add_argument("--no-more", action="store_true", help="Apply the retention rules to these jobs again.")
    remove.add_argument("--dry-run", action="store_true", help="Only show what would be freed.")


def run(args: argparse.Namespace) -> int:
    """List, cancel or remove jobs."""
    server = Server(args.server, args.token)
    if args.action == "cancel":
        for name in args.jobs:
            server.post(f"jobs/{urllib.parse.quote(name, safe='')}/cancel")
        return 0
    answer = server.get("jobs")
    jobs: list[Json] = answer["jobs"]
    if args.action == "remove":
        return _remove(server, args, jobs)
    if args.action == "keep":
        for name in args.jobs:
            server.send("PUT", f"jobs/{urllib.parse.quote(name, safe='')}/kept", {"kept": not args.no_more})
        return 0
    return _list(answer, args.json)


def _list(answer: Json, as_json: bool) -> int:
    from visualprof.cli._terminal import render
    from visualprof.views.answers.table import Table

    jobs: list[Json] = answer["jobs"]
    if as_json:
        print(json.dumps(jobs))
        return 0
    rows = [{**_row(job), "note": _note(job["id"], answer)} for job in jobs]
    shown: dict[str, Kind] = {
        name: kind for name, kind in SHOWN.items() if name != "note" or any(row["note"] for row in rows)
    }
    columns = {name: [row[name] for row in rows] for name in shown}
    print(render(Table(columns=columns, kinds=shown), "", shutil.get_terminal_size().columns, len(rows)), end="")
    return 0


def _row(job: Json) -> Json:
    submitted = time.strftime("%Y-%m-%d %H:%M", time.localtime(job["submitted_ns"] / 1e9))
    tasks = job["tasks"]
    texts = {name: plain(job[name]) for name in ("id", "name", "model", "state")}
    texts["name"] += " (sample)" * job["sample"]
    return {**texts, "submitted": submitted, "specs": len(tasks), "points": sum(task["points"] for task in tasks)}


def _note(job: str, answer: Json) -> str:
    """Return why a job waits, or when it will be removed."""
    if job in answer["waits"]:
        return waits_for(answer["waits"][job])
    at_ns = answer["leaving"].get(job)
    return f"removed on {time.strftime('%Y-%m-%d', time.localtime(at_ns / 1e9))}: keep it?" if at_ns else ""


def _remove(server: Server, args: argparse.Namespace, jobs: list[Json]) -> int:
    names: list[str] = list(args.jobs)
    if args.older_than is not None:
        before = time.time_ns() - args.older_than * DAY_NS
        names += [job["id"] for job in jobs if job["state"] in FINAL and job["updated_ns"] < before]
    elif not names:
        raise BadParameter("no job is named", "visualprof jobs remove ID, or --older-than DAYS")
    answers: dict[str, Json] = {}
    for name in dict.fromkeys(names):
        path = f"jobs/{urllib.parse.quote(name, safe='')}"
        answers[name] = server.get(f"{path}/space") if args.dry_run else server.send("DELETE", path)
        if not args.json:
            print(_removal_text(name, answers[name], "would free" if args.dry_run else "removed, which frees"))
    if args.json:
        print(json.dumps(answers))
    elif len(answers) > 1:
        total = sum(answer["size_bytes"] for answer in answers.values())
        print(f"{len(answers)} jobs: {total / 1e6:,.1f} MB", file=sys.stdout)
    return 0


def _removal_text(name: str, freed: Json, how: str) -> str:
    runs = f" with {len(freed['runs'])} results" if len(freed["runs"]) != 1 else " with its result"
    return f"{plain(name)}{runs}: {how} {freed['size_bytes'] / 1e6:,.1f} MB"
