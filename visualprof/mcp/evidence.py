"""Where a number comes from: the page that shows it, the file and rows behind it, the API's address of the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from visualprof.errors import NotFound
from visualprof.reader.logdir.listing import Listing
from visualprof.server.routes import ROOT

Query = Mapping[str, str]

# Views that stand on the page of another one, as in the page's `state/catalog.ts`.
PAGES = {
    "findings": "overview", "roofline": "operator", "runtime": "kernel", "sequences": "kernel", "modules": "flame",
    "launch": "idle", "critical": "idle", "whatif": "idle", "ranks": "distributed", "collectives": "distributed",
    "heatmap": "distributed",
    "serving": "overview", "captured": "kernel", "counters": "kernel", "compiled": "flame", "calls": "operator",
}  # fmt: skip
_SPAN_IDS = ("run", "worker", "span")
_RENAMED = {  # parameters that a page, or a comparison on it, calls otherwise
    ("operator", "operator"): "is.name", ("trace", "text"): "search",
    ("diff", "group"): "diff_group", ("diff", "sort"): "diff_sort", ("diff", "order"): "diff_order",
}  # fmt: skip
_API_ONLY = ("limit", "offset", "table", "view", "start_ns", "end_ns")


def build_evidence(server: str, path: str, query: Query, listing: Listing, page: str) -> dict[str, Any]:
    """What stands behind an answer.

    Args:
        server: address of a dashboard over the same log directories, "" where none is known.
        path: of the question, below the API's root.
        query: of the question.
        listing: what the log directories hold.
        page: the page or view that shows it, "" for none.
    """
    page = query.get("view", page)  # of a comparison
    side = "diff" if "base" in query else page
    shown = {_RENAMED.get((side, name), name): text for name, text in query.items() if name not in _API_ONLY}
    if page == "trace" and "end_ns" in query:
        shown["win"] = f"{query.get('start_ns', 0)}~{query['end_ns']}"
    return {
        **dict(_files(listing, query)),
        **({"page": _link(server, f"/#/{PAGES.get(page, page)}", shown)} if page else {}),
        "api": _link(server, f"{ROOT}{path}", query),
    }


def timeline_link(
    server: str, query: Query, listing: Listing, event: str, start_ns: int = 0, duration_ns: int = 0
) -> str:
    """The timeline with an event selected, in the middle where its time since the first event is known."""
    run = next((run for run in listing.runs if run.id == query.get("run")), None)
    workers = [worker.id for worker in run.workers] if run else []
    place = workers.index(query["worker"]) if query.get("worker") in workers else 0
    margin = max(1, duration_ns)
    around = {"win": f"{max(0, start_ns - margin)}~{start_ns + 2 * margin}"} if start_ns or duration_ns else {}
    return _link(server, "/#/trace", {**{name: query[name] for name in _SPAN_IDS if name in query}, **around}) + (
        f"&sel={place}.{event}"
    )


def _files(listing: Listing, query: Query) -> Iterator[tuple[str, str]]:
    """The recordings that a question is about, by their names below the log directories."""
    for before, name in (("", "file"), ("base_", "base_file")):
        run = query.get("base" if before else "run")
        with contextlib.suppress(NotFound):
            if run:
                span = listing.find(run, query.get(f"{before}worker", ""), query.get(f"{before}span", ""))
                yield name, span.log_file.file


def _link(server: str, path: str, query: Query) -> str:
    return f"{server}{path}?{urlencode(query, errors='replace')}" if query else f"{server}{path}"
