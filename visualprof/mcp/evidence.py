"""Say where a number comes from: the page that shows it, the file and rows, and the API's address."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from visualprof.errors import NotFound
from visualprof.reader.logdir.listing import Listing, Span
from visualprof.server.routes import ROOT

Query = Mapping[str, str]

# Views that appear on the page of another view, as in the web UI's `state/catalog.ts`.
PAGES = {
    name: value
    for name, _, value in (
        pair.partition("=")
        for pair in """
        findings=overview plan=overview roofline=operator sequences=kernel modules=flame launch=idle
        critical=idle whatif=idle ranks=distributed collectives=distributed heatmap=distributed
        serving=overview captured=kernel counters=kernel compiled=flame calls=operator
        heap_ranks=snapshot
    """.split()
    )
}
_SPAN_IDS = ("run", "worker", "span")
_RENAMED = {  # parameters with another name on a page, or in a comparison on it
    ("operator", "operator"): "is.name",
    ("trace", "text"): "search",
    ("diff", "group"): "diff_group",
    ("diff", "sort"): "diff_sort",
    ("diff", "order"): "diff_order",
}
_API_ONLY = ("limit", "offset", "table", "view", "start_ns", "end_ns")


def build_evidence(server: str, path: str, query: Query, listing: Listing, page: str) -> dict[str, Any]:
    """Return the sources of an answer.

    Args:
        server: Address of a dashboard of the same log directories, "" if unknown.
        path: Path of the request below the API's root.
        query: Query of the request.
        listing: Contents of the log directories.
        page: The page or view that shows the answer, "" for none.
    """
    page = query.get("view", page)  # a comparison names its view
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
    """Return a link to the timeline with an event selected, and centered if its time since the first event is known."""
    run = next((run for run in listing.runs if run.id == query.get("run")), None)
    workers = [worker.id for worker in run.workers] if run else []
    place = workers.index(query["worker"]) if query.get("worker") in workers else 0
    margin = max(1, duration_ns)
    around = {"win": f"{max(0, start_ns - margin)}~{start_ns + 2 * margin}"} if start_ns or duration_ns else {}
    return _link(server, "/#/trace", {**{name: query[name] for name in _SPAN_IDS if name in query}, **around}) + (
        f"&sel={place}.{event}"
    )


def recording_warnings(query: Query, listing: Listing) -> list[str]:
    """Return the warnings about the recordings that a request refers to, with the name of the file if there are two."""
    spans = dict(_spans(listing, query))
    return [
        f"{span.log_file.file}: {warning}" if len(spans) > 1 else warning
        for span in spans.values()
        for warning in (span.summary.warnings if span.summary else ())
    ]


def _files(listing: Listing, query: Query) -> Iterator[tuple[str, str]]:
    """Yield the recordings that a request refers to, by their names below the log directories."""
    for name, span in _spans(listing, query):
        yield name, span.log_file.file


def _spans(listing: Listing, query: Query) -> Iterator[tuple[str, Span]]:
    """Yield the spans that a request refers to."""
    for before, name in (("", "file"), ("base_", "base_file")):
        run = query.get("base" if before else "run")
        with contextlib.suppress(NotFound):
            if run:
                yield name, listing.find(run, query.get(f"{before}worker", ""), query.get(f"{before}span", ""))


def _link(server: str, path: str, query: Query) -> str:
    return f"{server}{path}?{urlencode(query, errors='replace')}" if query else f"{server}{path}"
