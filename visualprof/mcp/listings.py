"""Lists that an assistant chooses from, a row each: runs, the files of one, views."""

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
    "state", "progress", "format", "framework", "events", "duration_ns", "steps", "views", "warnings", "error", "hint",
)  # fmt: skip


def runs_listing(body: Json, arguments: Mapping[str, str]) -> Json:
    """The runs, the newest first, or the files of one.

    Raises: NotFound: there is no such run. BadParameter.
    """
    runs: list[Json] = sorted(body["runs"], key=lambda run: -run["modified_ns"])
    if name := arguments.get("run"):
        run = next((run for run in runs if run["id"] == name), None)
        if run is None:
            raise NotFound(f"there is no run called {name[:200]!r}", "list_runs without `run` names them")
        return {"files": _table(_files(run), arguments)}
    part = arguments.get("search", "").casefold()
    shown = [_run(run) for run in runs if part in run["id"].casefold()]
    return {"runs": _table(shown, arguments), "skipped": body["skipped"]}


def views_listing(body: Json, arguments: Mapping[str, str]) -> Json:
    """What each view tells and takes, or all that is documented of one.

    Raises: NotFound: there is no such view.
    """
    if name := arguments.get("view"):
        chosen = view(name)
        documented = {"answer": chosen.answer_type, "how": chosen.compute, "parameters": chosen.params}
        return {
            "view": name,
            "tells": view_summary(chosen),
            **{key: inspect.getdoc(it) for key, it in documented.items()},
        }
    every = [
        {
            "view": one["name"],
            "tells": view_summary(view(one["name"])),
            "of": one["subject"],
            "parameters": one["parameters"],
        }
        for one in body["views"]
    ]
    return {"views": _table(every, arguments)}


def view_summary(chosen: View) -> str:
    """What a view tells, in a sentence."""
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
    """A moment in UTC; None beyond the calendar."""
    try:
        return (_EPOCH + timedelta(microseconds=ns // 1000)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return None


def _table(rows: Sequence[Json], arguments: Mapping[str, str]) -> Json:
    """Rows from an offset on, in the shape of the API's tables."""
    text = arguments.get("offset", "0")
    if not text.isdecimal():
        raise BadParameter(f"offset={text[:40]!r} is not a whole number")
    offset = check_range("offset", int(text[:20]), 2**53)
    shown = rows[offset:]
    columns = {name: [row[name] for row in shown] for name in (rows[0] if rows else ())}
    return {"columns": columns, "total_rows": len(rows), "offset": offset}
