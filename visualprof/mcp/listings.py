"""List runs, the files of a run, and views, one row each, for language models to choose from."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from visualprof.errors import BadParameter, NotFound
from visualprof.server.api.spans import check_range
from visualprof.views import View, view

Json = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SPAN_FIELDS = (
    "state",
    "progress",
    "format",
    "framework",
    "events",
    "duration_ns",
    "steps",
    "views",
    "warnings",
    "error",
    "hint",
)


def runs_listing(body: Json, arguments: Mapping[str, str]) -> Json:
    """Return the runs, newest first, or the files of one run.

    Raises:
        NotFound: There is no such run.
        BadParameter: The offset is invalid.
    """
    runs: list[Json] = sorted(body["runs"], key=lambda run: -run["modified_ns"])
    if name := arguments.get("run"):
        run = next((run for run in runs if run["id"] == name), None)
        if run is None:
            raise NotFound(f"there is no run called {name[:200]!r}", "call list_runs without `run` to list all runs")
        return {"files": _table(_files(run), arguments)}
    part = arguments.get("search", "").casefold()
    shown = [_run(run) for run in runs if part in run["id"].casefold()]
    return {"runs": _table(shown, arguments), "skipped": body["skipped"]}


def views_listing(body: Json, arguments: Mapping[str, str]) -> Json:
    """Return summary and parameters of each view, or the full documentation of one view.

    Raises:
        NotFound: There is no such view.
    """
    if name := arguments.get("view"):
        chosen = view(name)
        documented = {"answer": chosen.answer_type, "how": chosen.compute, "parameters": chosen.params}
        return {
            "view": name,
            "tells": view_summary(chosen),
            **{key: inspect.getdoc(source) for key, source in documented.items()},
        }
    every = [
        {
            "view": entry["name"],
            "tells": view_summary(view(entry["name"])),
            "of": entry["subject"],
            "parameters": entry["parameters"],
        }
        for entry in body["views"]
    ]
    return {"views": _table(every, arguments)}


def view_summary(chosen: View) -> str:
    """Return the description of a view."""
    return (sys.modules[chosen.compute.__module__].__doc__ or "").strip()


def _run(run: Json) -> Json:
    spans: list[Json] = [span for worker in run["workers"] for span in worker["spans"]]
    first: Json = spans[0] if spans else {}
    return {
        "run": run["id"],
        "modified": _time(run["modified_ns"]),
        "frameworks": run["frameworks"] or None,
        "workers": len(run["workers"]),
        "state": "/".join(sorted({span["state"] for span in spans})) or "not recorded yet",
        "steps": len(first["steps"]) if first.get("duration_ns") is not None else None,
        "duration_ns": first.get("duration_ns"),
        "views": first.get("views") or None,
        "error": next((span["error"] for span in spans if span["error"]), None),
    }


def _files(run: Json) -> list[Json]:
    return [
        {"worker": worker["id"], "rank": worker["rank"], "span": span["id"], "file": span["file"]}
        | {"size_bytes": span["size_bytes"], "modified": _time(span["modified_ns"])}
        | {name: span[name] for name in _SPAN_FIELDS}
        for worker in run["workers"]
        for span in worker["spans"]
    ]


def _time(ns: int) -> str | None:
    """Return a time in UTC; `None` beyond the calendar."""
    try:
        return (_EPOCH + timedelta(microseconds=ns // 1000)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return None


def _table(rows: Sequence[Json], arguments: Mapping[str, str]) -> Json:
    """Return rows from an offset on, in the form of the API's tables."""
    text = arguments.get("offset", "0")
    if not text.isdecimal():
        raise BadParameter(f"offset={text[:40]!r} is not a whole number")
    offset = check_range("offset", int(text[:20]), 2**53)
    shown = rows[offset:]
    columns = {name: [row[name] for row in shown] for name in (rows[0] if rows else ())}
    return {"columns": columns, "total_rows": len(rows), "offset": offset}
