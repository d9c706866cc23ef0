"""Changes of what something takes: `kernel[name~gemm]*0.5`, `dataloader=0`, `sync=remove`."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Category, Floats, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.groups import distinct, is_in
from visualprof.views.measure.intervals import covered_ns, union
from visualprof.views.measure.launch import DEVICE_CATEGORIES, device_calls, is_operator, launches
from visualprof.views.measure.replay.build import COPY_CALL, NONBLOCKING_CALL_NS
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, WaitGraph

DEVICE_TARGETS = {
    "kernel": (Category.KERNEL, Category.COMM), "collective": (Category.COMM,),
    "copies": (Category.MEMCPY, Category.MEMSET), "gpu": DEVICE_CATEGORIES,
}  # fmt: skip
KIND_CHANGES = (
    "dataloader=0",
    "sync=remove",
    "copies=async",
    "launch=0",
    "collective*0.5",
    "gpu*0.5",
)  # of whole kinds
MAX_SUGGESTIONS = 5  # suggested of a kind
NAMED_TARGETS = ("kernel", "collective", "copies", "operator", "host", "rank")
TARGET_ACTIONS = {("sync", "remove"), ("copies", "async"), ("copies", "pinned"), ("rank", "median")}
PAGEABLE_COPY = "Pageable -> Device"
EXAMPLES = msg(
    "views.kernel_name_gemm_0",
    "kernel[name~gemm]*0.5, operator[aten::layer_norm]*0.3, host[cudaMalloc]=0, collective*0.5, gpu*0.6, dataloader=0, "
    "launch=0, sync=remove, copies=async, copies=pinned; in a run of several ranks rank[3]=median, rank[*]=median",
)
_CHANGE = re.compile(
    r"(?P<what>\w+)(?:\[(?P<part>name~)?(?P<name>[^\]]+)\])?(?:\*(?P<factor>\d+(?:\.\d+)?)|=(?P<word>\w+))"
)


class Change(NamedTuple):
    """One change. what: of which it is. name: exact, or a part of it in any case; "" for all. factor: of its time.

    word: `remove` and `async` end the waiting for it, `pinned` the copying aside of memory that may be paged out.
    """

    text: str
    target: str
    name: str = ""
    is_partial: bool = False
    factor: float = 1.0
    action: str = ""

    def matches(self, name: str) -> bool:
        """Is something of this name meant?"""
        return not self.name or (self.name.casefold() in name.casefold() if self.is_partial else self.name == name)


def parse_changes(text: str) -> list[Change]:
    """The changes of a text, between semicolons.

    Raises: BadParameter: one is none.
    """
    return [_parsed(part.strip()) for part in text.split(";") if part.strip()]


def _parsed(text: str) -> Change:
    match = _CHANGE.fullmatch(text)
    what, word = (match["what"], match["word"]) if match else ("", None)
    known = match is not None and what in {*DEVICE_TARGETS, "operator", "host", "dataloader", "launch"}
    named = match is not None and match["name"] is not None
    timed = known and word in (None, "0") and (named or what != "host")
    if not match or not (timed or (what, word) in TARGET_ACTIONS) or (named and what not in NAMED_TARGETS):
        raise BadParameter(
            msg("views.no_change", f"{text[:80]!r} is no change"), msg("views.example", f"for example: {EXAMPLES}")
        )
    if what == "rank" and not re.fullmatch(r"\*|\d{1,6}", match["name"] or ""):
        raise BadParameter(
            msg("views.names_no_rank", f"{text[:80]!r} names no rank"), msg("views.example", f"for example: {EXAMPLES}")
        )
    factor = 1.0 if not timed else float(match["factor"] or 0)
    if factor > 1000:
        raise BadParameter(
            msg("views.thousand_times_most", f"{text[:80]!r}: a thousand times is the most"),
            msg("views.example", f"for example: {EXAMPLES}"),
        )
    return Change(text, what, match["name"] or "", bool(match["part"]), factor, "" if timed else word or "")


def apply_changes(trace: Trace, graph: WaitGraph, changes: list[Change]) -> tuple[Floats, Floats]:
    """The times of the moments' work and of the waits after some changes, one after the other.

    Raises: BadParameter: the recording has nothing that one of them is about.
    """
    dur, ns = graph.nodes.dur.astype(np.float64), np.array(graph.edges.delay_ns)
    for change in changes:
        if change.target == "rank":
            raise BadParameter(
                msg("views.about_several_ranks", f"{change.text} is about several ranks"),
                msg("views.choose_run_several_ranks", "choose a run of several ranks"),
            )
        if not _apply(trace, graph, change, dur, ns):
            raise BadParameter(
                msg("views.recording_nothing", f"{change.text}: the recording has nothing of that"),
                msg("views.names_tables", "names are those of the tables"),
            )
    return dur, ns


def suggest_changes(trace: Trace, graph: WaitGraph) -> list[str]:
    """Changes of what a recording has: of whole kinds, and half the time of the longest kernels and operators."""
    events, kinds = trace.events, set(distinct(trace.events.category).tolist())
    blocking = graph.edges.dst[graph.edges.kind == DEPENDENCY_KINDS.index("return")]
    callers = distinct(events.name[graph.nodes.event[blocking]])
    copying = {COPY_CALL.match(trace.strings[int(name)]) is not None for name in callers}
    work = device_calls(trace)[0]
    has = (
        Category.DATALOADER in kinds,
        False in copying,
        True in copying,
        bool((graph.edges.kind == DEPENDENCY_KINDS.index("launch")).any()),
        Category.COMM in kinds,
        len(work) > 0,
    )
    kernel = work[events.category[work] == Category.KERNEL]
    longest = [("kernel", kernel), ("operator", np.flatnonzero(is_operator(trace)))]
    named = [f"{what}[{name}]*0.5" for what, rows in longest for name in _longest(trace, rows)]
    return [*(text for text, there in zip(KIND_CHANGES, has, strict=True) if there), *named]


def _longest(trace: Trace, rows: Rows) -> list[str]:
    """The names whose events take the most time; none, or one with a bracket or a semicolon, cannot be written down."""
    name = trace.events.name[rows]
    spent = np.bincount(name, np.maximum(trace.events.dur[rows], 0), len(trace.strings))
    order = np.argsort(-spent, kind="stable")[:MAX_SUGGESTIONS]
    texts = [trace.strings[int(i)] for i in order if spent[i] > 0]
    return [text for text in texts if text and "]" not in text and ";" not in text]


def _apply(trace: Trace, graph: WaitGraph, change: Change, dur: Floats, ns: Floats) -> bool:
    """Does the recording have what it is about?"""
    moments, waits = graph.nodes, graph.edges
    back = np.flatnonzero(waits.kind == DEPENDENCY_KINDS.index("return"))
    if change.action in ("remove", "async"):
        names = trace.events.name[moments.event[waits.dst[back]]]
        copies = np.array([COPY_CALL.match(trace.strings[int(name)]) is not None for name in names], bool)
        back = back[copies == (change.target == "copies")]
        ns[back] = -np.inf
        return len(back) > 0
    work, host = affected_events(trace, change)
    since = int(graph.step_nodes[0]) if len(graph.step_nodes) else 0  # what is before the first step stays as it was
    mine = np.flatnonzero((moments.thread_group < 0) & work[moments.event])
    mine = mine[mine >= since]
    dur[mine] *= change.factor
    if change.target == "launch":
        ns[(waits.kind == DEPENDENCY_KINDS.index("launch")) & (waits.dst > since)] *= change.factor
    if change.target in ("host", "operator") and change.factor == 0 and len(back):  # what is not called does not wait
        call = moments.event[waits.dst[back]]
        ns[back[nearest_ancestor(trace.events.parent, host, call) >= 0]] = -np.inf
    events, kept, less = trace.events, 0, 1 - change.factor
    if change.action == "pinned":
        kept, less = NONBLOCKING_CALL_NS, 1.0
    for line, tracks in enumerate(graph.group_tracks if host.any() else ()):
        rows = np.flatnonzero(host & is_in(events.track, tracks) & (events.dur > kept))
        edges = np.flatnonzero(
            (waits.kind <= DEPENDENCY_KINDS.index("call")) & (moments.thread_group[waits.dst] == line)
        )
        edges = edges[waits.dst[edges] > since]
        spans = union(events.ts[rows] + kept, events.end[rows]) - trace.span_ns[0]
        spent = covered_ns(spans, moments.time[waits.src[edges]], moments.time[waits.dst[edges]])
        ns[edges] = np.maximum(ns[edges] - less * spent, 0)
    return bool(len(mine) or host.any())


def affected_events(trace: Trace, change: Change) -> tuple[Mask, Mask]:
    """Of each event: is it device work, or time of a thread, that the change is about?"""
    events = trace.events
    nothing = np.zeros(len(events), bool)
    named = np.array([change.matches(name) for name in trace.strings], bool)[events.name]
    threads = trace.track_mask(TrackKind.THREAD) & (events.dur > 0)
    work, call, _ = device_calls(trace)
    if change.action == "pinned":
        pageable = np.array([PAGEABLE_COPY in name for name in trace.strings], bool)[events.name[work]]
        host = np.array(nothing)
        host[call[pageable & (call >= 0)]] = True
        return nothing, host
    if change.target in DEVICE_TARGETS:
        on_device = named & events.category_mask(*DEVICE_TARGETS[change.target]) & trace.track_mask(TrackKind.STREAM)
        # Where no collective runs on a device, they are work of threads.
        alone = change.target == "collective" and not (events.category[work] == Category.COMM).any()
        return on_device, named & threads & (events.category == Category.COMM) if alone else nothing
    if change.target == "host":
        return nothing, named & threads
    if change.target == "dataloader":
        return nothing, threads & (events.category == Category.DATALOADER)
    if change.target == "launch":
        host = np.array(nothing)
        host[call[call >= 0]] = True
        return nothing, host
    meant = named & is_operator(trace)
    owned = np.array(nothing)
    joined = launches(trace)
    inside = np.where(joined.site != joined.issuer, joined.site, call)  # of captured graphs their operators
    owned[work[nearest_ancestor(events.parent, meant, inside) >= 0]] = True
    return owned, meant
