"""Show a job on the terminal: its progress while it runs, and its points at the end."""

from __future__ import annotations

import shutil
import sys
import time
import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from visualprof.cli._server import Server, Unreachable
from visualprof.cli._task_log import failure_lines

if TYPE_CHECKING:
    from visualprof.views.answers.kinds import Kind

Json = dict[str, Any]

ASK_S = 0.4
PATIENCE_S = 120.0  # without an answer: a restarting server keeps its jobs
FINAL = ("succeeded", "failed", "cancelled")


def plain(text: object) -> str:
    """Return text from other machines without control characters."""
    return "".join(c if c.isprintable() else "�" for c in str(text))


def wait(server: Server, job: str, out: TextIO) -> Json:
    """Return the job when it has finished. The first Ctrl-C cancels the job, a second one stops waiting."""
    shown = _Live(out) if out.isatty() else _Lines(out)
    asked = False
    while True:
        try:
            answer = _ask(server, job, out)
            shown.show(answer)
            if answer["job"]["state"] in FINAL:
                shown.end()
                return answer
            time.sleep(ASK_S)
        except KeyboardInterrupt:  # noqa: PERF203 - the loop sleeps
            if asked:
                raise
            asked = True
            print("\ncancelling; Ctrl-C again leaves the job to itself", file=out, flush=True)
            server.post(f"jobs/{urllib.parse.quote(job)}/cancel")


def _ask(server: Server, job: str, out: TextIO) -> Json:
    """Return the job's state. A server that is briefly unreachable is retried."""
    end = time.monotonic() + PATIENCE_S
    warned = False
    while True:
        try:
            return server.get(f"jobs/{urllib.parse.quote(job)}")
        except Unreachable:  # noqa: PERF203 - the loop sleeps
            if time.monotonic() > end:
                raise
            if not warned:
                print("the server does not answer; waiting for it", file=out, flush=True)
            warned = True
            time.sleep(1)


class _Lines:
    """Output of one line per change, for logs."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._states: dict[str, str] = {}
        self._points: set[tuple[str, int, int]] = set()

    def show(self, answer: Json) -> None:
        for point in answer["points"]:
            key = (point["task"], point["batch"], point["p50_ns"])
            if key not in self._points:
                self._points.add(key)
                print(f"{plain(point['spec'])}: {_point(point)}", file=self._out, flush=True)
        for task in answer["job"]["tasks"]:
            state = _state(task, answer)
            if self._states.get(task["id"]) != state:
                self._states[task["id"]] = state
                print(f"{plain(task['spec'])}: {state}", file=self._out, flush=True)

    def end(self) -> None:
        """Finish the output."""


class _Live:
    """Block of lines that is redrawn in place."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn = 0

    def show(self, answer: Json) -> None:
        width = shutil.get_terminal_size().columns
        lines = [line[: width - 1] for line in _block(answer)][: shutil.get_terminal_size().lines - 2]
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._out.write(up + "".join(f"\r\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        self._out.flush()
        self._drawn = len(lines)

    def end(self) -> None:
        """Finish the output."""


def _block(answer: Json) -> Iterator[str]:
    for task in answer["job"]["tasks"]:
        points = [p for p in answer["points"] if p["task"] == task["id"]]
        last = f"  {_point(points[-1])}" if points else ""
        done = "" if task["state"] in (*FINAL, "waiting") else f" {task['progress'] * 100:3.0f} %"
        yield f"{plain(task['spec']):24} {_state(task, answer)}{done}{last}"


def waits_for(wait: Json) -> str:
    """Return why a task is waiting."""
    n, total, machine = wait["n"], wait["of"], plain(wait["machine"])
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(wait["until_ns"] / 1e9)) if wait["until_ns"] else ""
    hours = f"{(n or 0) / 3.6e12:,.1f} of {(total or 0) / 3.6e12:,.1f}"
    texts = {
        "files": "its files are not here yet",
        "machine": "no machine that is online can run it",
        "drained": f"{machine} is given no tasks",
        "maintenance": f"{machine} is in maintenance until {until}",
        "reserved": f"{machine} is reserved until {until}",
        "hours": f"hours of devices in 30 days: {hours} are used",
        "jobs": f"quota: {n} of {total} jobs run",
        "turn": f"its turn: {n} of {total}",
    }
    return texts[wait["reason"]]


def _state(task: Json, answer: Json) -> str:
    phase = f", {task['phase']}" if task["phase"] and task["state"] == "running" else ""
    place = f" on {plain(task['agent_name'])}" if task["agent_name"] and task["state"] == "running" else ""
    why = f" ({task['reason']})" if task["reason"] else ""
    waits = f": {waits_for(answer['waits'][task['id']])}" if task["id"] in answer["waits"] else ""
    return f"{task['state']}{phase}{place}{why}{waits}"


def _point(point: Json) -> str:
    margin = f" ± {point['p50_margin_ns'] / 1e6:,.3f}" if point["p50_margin_ns"] is not None else ""
    marks = ("  unstable" * (not point["stable"])) + ("  host busy" * bool(point["host_busy"]))
    median = "too few runs for a p50" if point["p50_ns"] is None else f"p50 {point['p50_ns'] / 1e6:,.3f}{margin} ms"
    return f"batch {point['batch']}: {point['qps']:,.1f} runs/s, {median}{_load(point)}{marks}"


def _load(point: Json) -> str:
    """Return the load of a point unless runs followed one another, and whether the latency limit was met."""
    row = _flat(point)
    scenario, lanes, rate = row.get("scenario", "closed"), row.get("concurrency") or 1, row.get("offered_per_s")
    parts = [scenario] if scenario != "closed" else []
    parts += [f"{lanes} at once"] if lanes > 1 else []
    parts += [f"{rate:,.1f}/s offered"] if rate else []
    if row.get("verdict") and row["limit_ns"]:
        tail = "" if row["tail_ns"] is None else f" {row['tail_ns'] / 1e6:,.3f} ms"
        parts.append(f"p{row['percentile']:g}{tail} of {row['limit_ns'] / 1e6:,.10g} ms: {row['verdict']}")
    return "".join(f", {plain(part)}" for part in parts)


def _flat(point: Json) -> Json:
    """Return a point with the fields of its load at the top level."""
    load: Json = point.get("load") or {}
    return {**point, **(load.get("step") or {}), **load}


_POINTS: dict[str, Kind] = {
    "spec": "name",
    "batch": "count",
    "qps": "count",
    "p50_ns": "ns",
    "p99_ns": "ns",
    "stable": "flag",
    "host_busy": "flag",
}
_REPEATED: dict[str, Kind] = {"repeats": "count", "samples_per_s_margin": "count", "p50_margin_ns": "ns"}
_LOAD: dict[str, Kind] = {"concurrency": "count", "offered_per_s": "count", "tail_ns": "ns", "verdict": "word"}
_RESULTS: dict[str, Kind] = {
    "spec": "name",
    "agent": "name",
    "device": "name",
    "runtime": "name",
    "precision": "name",
}


def summary(server: Server, answer: Json, out: TextIO) -> None:
    """Print the points as a table, where and how they ran, what failed and why, and the links to open."""
    backends = {task["id"]: task["backend"] for task in answer["job"]["tasks"]}
    results: list[Json] = [
        {**result, "runtime": f"{backends[result['task']]} {result['version']}"} for result in answer["results"]
    ]
    points = [{**_flat(point), "repeats": len(point["repeats"] or [point])} for point in answer["points"]]
    shown = _POINTS | (_LOAD if any(map(_load, points)) else {})
    shown |= _REPEATED if any(point["repeats"] > 1 for point in points) else {}
    for rows, kinds in ((points, shown), (results, _RESULTS)):
        if rows:
            print(table(rows, kinds), file=out)
    for result in results:
        compared = [verdict for verdict in answer["verdicts"] if verdict["report"] == result["report"]]
        if verdicts := "; ".join(map(_verdict, [*result["verdicts"], *compared])):
            print(f"{plain(result['spec'])}: {verdicts}", file=out)
    for task in answer["job"]["tasks"]:
        for line in _ending(server, answer["job"]["id"], task):
            print(line, file=out)
    reports = [r["report"] for r in results if any(point["task"] == r["task"] for point in answer["points"])]
    if reports:
        ids = ",".join(text.replace("%", "%25").replace(",", "%2C") for text in reports)  # the escapes of the web UI
        print(f"compare: {server.url}#/evaluation?{urllib.parse.urlencode({'reports': ids}, safe=',/')}", file=out)


def table(rows: list[Json], kinds: dict[str, Kind]) -> str:
    """Return rows as aligned columns, each of its kind."""
    from visualprof.cli._terminal import render
    from visualprof.views.answers.table import Table

    columns = {name: [plain(row[name]) if kinds[name] == "name" else row.get(name) for row in rows] for name in kinds}
    return render(Table(columns=columns, kinds=kinds), "", shutil.get_terminal_size().columns, len(rows))


def _verdict(verdict: Json) -> str:
    """Return the name of a verdict, and the sizes that it applies to unless it applies to all."""
    sizes = f" (batch {', '.join(map(str, verdict['batches']))})" if verdict["batch"] is not None else ""
    names = {
        "not_significant": "no significant difference to {best_spec}",
        "precision_differs": "{effective} beside {others}",
    }
    text = names.get(verdict["id"], str(verdict["id"]).replace("_", " ")).format(**verdict["evidence"])
    return f"{plain(text)}{sizes}"


def _ending(server: Server, job: str, task: Json) -> Iterator[str]:
    """Yield the warnings and errors of a task, and the link to its result; a failed task links to its job and log."""
    spec = plain(task["spec"])
    for warning in task["warnings"]:
        yield f"{spec}: {plain(warning)}"
    if task["error"]:
        yield f"{spec}: {task['state']} ({task['reason']}): {plain(task['error'])}"
    if task["hint"]:
        yield f"hint: {plain(task['hint'])}"
    if task["state"] == "failed":
        yield from (f"log: {plain(line)}" for line in failure_lines(server, task["id"], task.get("log_bytes") or 0))
        yield f"{spec}: {server.url}#/run?{urllib.parse.urlencode({'job': job})}"
    elif task["run"]:
        yield f"{spec}: {server.url}#/overview?{urllib.parse.urlencode({'run': task['run']})}"


def exit_status(answer: Json) -> int:
    """Return 0 if the job succeeded, 1 if it failed, 3 if it was canceled."""
    return {"succeeded": 0, "cancelled": 3}.get(answer["job"]["state"], 1)


def stream(json: bool) -> TextIO:
    """Return the stream for text: stderr if JSON goes to stdout."""
    return sys.stderr if json else sys.stdout
