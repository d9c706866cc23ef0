"""Create a report: the web UI in one file, including the API responses that it would request from a server.

A report contains the first view of all pages of one run: every table up to a number of rows, and the charts. Of the
timeline it contains the whole at screen width, and the longest step in as much detail as fits. `frontend/src/report`
answers the web UI from these data.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import struct
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, get_args

from visualprof.errors import MissingData, VisualprofError
from visualprof.messages import msg
from visualprof.server.report_heap import heap_answers
from visualprof.server.report_tiles import MAX_TILES, initial_window, longest_step, scan_tile, tile_levels
from visualprof.views.diff.side import Viewed

MAX_REPORT_BYTES = 3_000_000
_ROW_LIMITS = (1000, 200, 40)  # of a table: fewer if names are long
_MAX_EVENTS = 300  # of the timeline, with all their details
_NAMES_PER_REQUEST = 65_536  # the API's limit
_TOP_CHOICES = ("5", "20", "1000")  # the other choices of top-control.vue; 10 is the default
_MAX_WINDOW_ROWS = 2000

# A page in a file has no headers, so the page itself declares that it makes no requests.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
</head>
<body>
<div id="app"><noscript>This report needs JavaScript. 此报告需要 JavaScript。</noscript></div>
<script type="text/plain" id="style">{style}</script>
<script type="text/plain" id="code">{code}</script>
<script type="text/plain" id="held">{held}</script>
<script>
(async () => {{
  const unpacked = (id) => {{
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (sign) => sign.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  }};
  const add = (name, facts) => document.head.append(Object.assign(document.createElement(name), facts));
  window.visualprofReport = await unpacked("held").arrayBuffer();
  add("style", {{ textContent: await unpacked("style").text() }});
  add("script", {{ type: "module", textContent: await unpacked("code").text() }});
}})().catch((error) => {{ document.getElementById("app").textContent = `This browser cannot show it: ${{error}}`; }});
</script>
</body>
</html>
"""


class WebUiNotBuilt(VisualprofError, status=409):
    """The error that the web UI is not built, so a report cannot be created."""


class ReportTooLarge(VisualprofError, status=413, docs_page="report#content"):
    """The error that a report is too large even with few rows."""


class SpanRef(NamedTuple):
    """A span by its ids; "" selects the first."""

    run: str
    worker: str = ""
    span: str = ""


class AskApi(Protocol):
    """A function that requests the API as the current user and returns the body of the response."""

    def __call__(self, route: str, **query: object) -> bytes:
        """Request a route below the API's root."""
        ...


def build_report(
    ask: AskApi, span: SpanRef, base: SpanRef | None, dist: Path, version: str, step_range: str = ""
) -> bytes:
    """Return the report of a span, and of its run as a whole, as HTML in UTF-8.

    Args:
        ask: Requests the API. Raises MissingData if a view has no data, and errors of the API.
        span: The span.
        base: The span to compare with.
        dist: Folder of the built web UI.
        version: Version of this program.
        step_range: Pattern of the ranges that are steps, which `ask` adds to its requests; "" for the file's own steps.

    Raises:
        WebUiNotBuilt: The web UI is not built.
        ReportTooLarge: The report would exceed `MAX_REPORT_BYTES`.
    """
    style, code = (_compressed_file(dist / f"report.{kind}") for kind in ("css", "js"))
    room = MAX_REPORT_BYTES - len(style) - len(code) - len(_PAGE) - 1000
    for rows in _ROW_LIMITS:
        held = _ReportContents(_SpanApi(ask, span, base), rows, step_range)
        held.add_answers(version)
        held.add_timeline(room * 3 // 4 - held.packed_bytes)
        packed = _compressed_text(held.bytes())
        if len(packed) <= room:
            title = escape(f"{held.name} · visualprof")
            page = _PAGE.format(policy=CONTENT_SECURITY_POLICY, title=title, style=style, code=code, held=packed)
            return page.encode("utf-8", "replace")
    raise ReportTooLarge(
        msg("server.report_would_over_mb", f"the report would be over {MAX_REPORT_BYTES // 1_000_000} MB"),
        msg("server.names_too_long", "its names are too long"),
    )


def _compressed_text(data: bytes) -> str:
    """Return data compressed and as base64, which contains no HTML syntax."""
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


@lru_cache(maxsize=4)
def _compressed_version(path: Path, mtime_ns: int) -> str:
    del mtime_ns
    return _compressed_text(path.read_bytes())


def _compressed_file(path: Path) -> str:
    try:
        return _compressed_version(path, path.stat().st_mtime_ns)
    except OSError:
        raise WebUiNotBuilt(
            msg("server.there_no_page", f"there is no {path.name} of the page"),
            msg("server.checkout_make_page_builds", "in a checkout, `make page` builds it"),
        ) from None


class _SpanApi:
    """The API, requested for one span."""

    def __init__(self, ask: AskApi, span: SpanRef, base: SpanRef | None) -> None:
        self.span, self.base = span, base
        self._ask = ask

    def raw(self, route: str, **query: object) -> bytes:
        return self._ask(route, **self.span._asdict(), **query)

    def json(self, route: str, **query: object) -> Any:
        return json.loads(self.raw(route, **query))


def _answer_key(route: str, query: Mapping[str, object]) -> str:
    """Return the key of an answer, without row selection and defaults, as offline-report.ts computes it."""
    return "&".join([route, *(f"{name}={value}" for name, value in sorted(query.items()))])


class _ReportContents:
    """The contents of a report: responses by key, and tiles."""

    def __init__(self, asked: _SpanApi, rows: int, step_range: str) -> None:
        self._asked, self._rows, self._step_range = asked, rows, step_range
        self._answers: dict[str, Any] = {}
        self._tiles: dict[str, tuple[int, int]] = {}
        self._names: dict[int, str] = {}
        self._first: dict[str, str] = {}
        self._blob = bytearray()
        self._steps: list[str] = []
        self._span: dict[str, Any] = {}
        self.name = ""

    @property
    def packed_bytes(self) -> int:
        """Return the approximate size of the responses in the report."""
        return len(zlib.compress(json.dumps(self._answers).encode(), 3)) * 4 // 3

    def bytes(self) -> bytes:
        """Return the JSON's length as little-endian u32, the JSON, and the tiles."""
        facts = {
            "answers": self._answers,
            "tiles": self._tiles,
            "names": self._names,
            "steps": self._steps,
            "step_range": self._step_range or None,
            "first": self._first,
            "run": self._asked.span.run,
            "base": self._asked.base and self._asked.base.run,
            "made_ms": time.time_ns() // 1_000_000,
        }
        text = json.dumps(facts, separators=(",", ":")).encode("utf-8", "surrogatepass")
        return struct.pack("<I", len(text)) + text + bytes(self._blob)

    def add_answers(self, version: str) -> None:
        """Add the responses that the app shell requests, and every view with its charts."""
        self._add_run()
        views: list[dict[str, Any]] = json.loads(self._asked.raw("views"))["views"]
        shown = [view for view in views if view["name"] in self._span["views"] and view["subject"] in ("trace", "run")]
        self._answers["views"] = {"views": shown, "queries": False}
        self._answers["status"] = {
            "version": version,
            "native_reader": "",
            "language": None,
            "read_only": True,
            "private": True,
            "logdirs": [],
            "watching": "polling",
            "person": None,
            "link_ends_ns": None,
        }
        for view in shown:
            for query in self._variants(view):
                self._add_view(view, query)
                if self._asked.base:
                    self._add_change(view["name"], query, self._asked.base)
            if view["name"] == "snapshot":
                for route, query, answer in heap_answers(self._asked.json, self._steps, self._rows):
                    self._answers[_answer_key(route, query)] = answer

    def _add_run(self) -> None:
        """Add the run with only the reported span, and the base run."""
        everything = self._asked.json("runs/changes")
        asked = self._asked
        run, asked.span = _single_span(everything["runs"], asked.span)
        runs = [run]
        if asked.base:
            base, asked.base = _single_span(everything["runs"], asked.base)
            runs.append(base)
        self._span, self.name = run["workers"][0]["spans"][0], run["name"] or run["id"]
        if self._step_range and "trace" in self._span["views"]:
            steps = asked.json("timeline/meta", minimap=0, counters=0)["steps"]
            self._span["steps"] = list(dict.fromkeys(step["name"] for step in steps))
        self._answers["runs/changes"] = {**everything, "since": None, "runs": runs, "removed": [], "skipped": []}

    def _add_change(self, view: str, query: Mapping[str, str], base: SpanRef) -> None:
        """Add the comparison with the base of a view that can be compared."""
        if view not in get_args(Viewed) or query.get("group", "shape") != "shape":
            return
        others = {"base": base.run, "base_worker": base.worker, "base_span": base.span}
        asked = {**query, "view": view}
        with contextlib.suppress(MissingData):
            answer = self._asked.json("diff", **asked, **others, limit=self._rows)
            self._answers[_answer_key("diff", {name: text for name, text in asked.items() if text != "overview"})] = (
                answer
            )

    def _variants(self, view: Mapping[str, Any]) -> Iterator[dict[str, str]]:
        """Yield the parameters that the web UI may use: all steps and the longest step, for each grouping."""
        ways: list[dict[str, str]] = [{}]
        for parameter in view["parameters"]:
            if parameter["name"] == "group":
                ways += ({"group": way} for way in parameter["choices"] if way not in (parameter["default"], "stack"))
        for step in ("", *self._steps):
            for way in ways:
                yield {**({"step": step} if step else {}), **way}

    def _add_view(self, view: Mapping[str, Any], query: Mapping[str, str]) -> None:
        name: str = view["name"]
        try:
            answer = self._asked.json(f"view/{name}", **query, limit=self._rows)
        except MissingData:
            return
        self._answers[_answer_key(f"view/{name}", query)] = answer
        for table in _plain_tables(answer):
            asked = {**query, "table": table}
            self._answers[_answer_key(f"view/{name}", asked)] = self._asked.json(
                f"view/{name}", **asked, limit=self._rows
            )
        if name == "overview" and not query:
            self._steps = longest_step(answer)
        if view["charts"]:
            tops = _TOP_CHOICES if name in ("operator", "kernel") else ()
            for more in ({}, *({"top": top} for top in tops)):
                asked = {**query, **more}
                self._answers[_answer_key(f"charts/{name}", asked)] = self._asked.json(f"charts/{name}", **asked)
        if name == "memory" and not query:
            for device in answer["devices"]:
                self._add_view(view, {"device": str(device["id"])})

    def add_timeline(self, room: int) -> None:
        """Add the timeline as tiles of at most `room` compressed bytes, and details of the longest step's events."""
        if "trace" not in self._span["views"]:
            return
        meta = self._asked.json("timeline/meta")
        self._answers["timeline/meta"] = meta
        low, high = initial_window(meta, self._steps)
        for start, end in {(low, high), *self._pointed()}:
            stretch = {"start_ns": start, "end_ns": end}
            window = self._asked.json("timeline/window", **stretch, limit=_MAX_WINDOW_ROWS)
            self._answers[_answer_key("timeline/window", stretch)] = window
        self._first = {"win": f"{low}~{high}", "area": f"{low}~{high}"}
        events: dict[int, float] = {}
        used: set[int] = set()
        count = packed_bytes = 0
        for level, tiles in tile_levels(meta, low, high, path="critical" in self._span["views"]):
            count += sum(tile.key.startswith("g") for tile in tiles)
            if count > MAX_TILES and packed_bytes:
                break
            bodies = [(tile.key, self._asked.raw(tile.route, **tile.query)) for tile in tiles]
            packed_bytes += len(zlib.compress(b"".join(body for _, body in bodies), 3)) * 4 // 3
            if packed_bytes > room:
                break
            for key, body in bodies:
                self._tiles[key] = len(self._blob), len(body)
                self._blob += body
                used |= scan_tile(key, body, level, (low, high), events)
        self._add_names(used)
        for event in sorted(events, key=events.__getitem__, reverse=True)[:_MAX_EVENTS]:
            details = self._asked.json("timeline/event", event=event, arguments=0)
            self._answers[_answer_key("timeline/event", {"event": event})] = details

    def _pointed(self) -> Iterator[tuple[int, int]]:
        """Yield the intervals of the findings, in ns since the first event."""
        for key, answer in self._answers.items():
            for finding in answer["findings"] if key.startswith("view/findings") else ():
                if finding["start_ns"] is not None and finding["end_ns"] is not None:
                    yield finding["start_ns"], finding["end_ns"]

    def _add_names(self, used: set[int]) -> None:
        """Add the names that the tiles refer to by number."""
        for first in sorted({name - name % _NAMES_PER_REQUEST for name in used}):
            page = self._asked.json("timeline/strings", offset=first, limit=_NAMES_PER_REQUEST)["strings"]
            self._names |= {name: page[name - first] for name in used if 0 <= name - first < len(page)}


def _single_span(runs: Sequence[dict[str, Any]], place: SpanRef) -> tuple[dict[str, Any], SpanRef]:
    """Return a run with only one span, and the ids of that span."""
    run = next(run for run in runs if run["id"] == place.run)
    worker = next(worker for worker in run["workers"] if place.worker in ("", worker["id"]))
    span = next(span for span in worker["spans"] if place.span in ("", span["id"]))
    return {**run, "workers": [{**worker, "spans": [span]}]}, SpanRef(run["id"], worker["id"], span["id"])


def _plain_tables(answer: Mapping[str, Any]) -> list[str]:
    """Return the names of tables that the answer contains only as columns.

    Requested separately, these tables come with their kinds.
    """
    parts = {name: cast("dict[str, object]", field) for name, field in answer.items() if isinstance(field, dict)}
    return [
        name
        for name, part in parts.items()
        if name != "columns" and part and all(isinstance(column, list) for column in part.values())
    ]
