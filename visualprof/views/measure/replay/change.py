"""Changes of what something takes: `kernel[name~gemm]*0.5`, `dataloader=0`, `sync=remove`."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Category, Floats, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.views.measure.groups import distinct, one_of
from visualprof.views.measure.intervals import covered, union
from visualprof.views.measure.launch import DEVICE_WORK, calls, is_operator, launches
from visualprof.views.measure.replay.build import CALL_NS, COPY
from visualprof.views.measure.replay.graph import KINDS, Graph

DEVICE = {
    "kernel": (Category.KERNEL, Category.COMM), "collective": (Category.COMM,),
    "copies": (Category.MEMCPY, Category.MEMSET), "gpu": DEVICE_WORK,
}  # fmt: skip
WHOLE = ("dataloader=0", "sync=remove", "copies=async", "launch=0", "collective*0.5", "gpu*0.5")  # of whole kinds
MOST = 5  # suggested of a kind
NAMED = ("kernel", "collective", "copies", "operator", "host", "rank")
WORDS = {("sync", "remove"), ("copies", "async"), ("copies", "pinned"), ("rank", "median")}
PAGEABLE = "Pageable -> Device"
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
    what: str
    name: str = ""
    part: bool = False
    factor: float = 1.0
    word: str = ""

    def holds(self, name: str) -> bool:
        """Is something of this name meant?"""
        return not self.name or (self.name.casefold() in name.casefold() if self.part else self.name == name)


def parse(text: str) -> list[Change]:
    """The changes of a text, between semicolons.

    Raises: BadParameter: one is none.
    """
    return [_parsed(part.strip()) for part in text.split(";") if part.strip()]


def _parsed(text: str) -> Change:
    match = _CHANGE.fullmatch(text)
    what, word = (match["what"], match["word"]) if match else ("", None)
    known = match is not None and what in {*DEVICE, "operator", "host", "dataloader", "launch"}
    named = match is not None and match["name"] is not None
    timed = known and word in (None, "0") and (named or what != "host")
    if not match or not (timed or (what, word) in WORDS) or (named and what not in NAMED):
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


def changed(trace: Trace, graph: Graph, changes: list[Change]) -> tuple[Floats, Floats]:
    """The times of the moments' work and of the waits after some changes, one after the other.

    Raises: BadParameter: the recording has nothing that one of them is about.
    """
    dur, ns = graph.moments.dur.astype(np.float64), np.array(graph.waits.ns)
    for change in changes:
        if change.what == "rank":
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


def suggestions(trace: Trace, graph: Graph) -> list[str]:
    """Changes of what a recording has: of whole kinds, and half the time of the longest kernels and operators."""
    events, kinds = trace.events, set(distinct(trace.events.category).tolist())
    blocking = graph.waits.dst[graph.waits.kind == KINDS.index("return")]
    callers = distinct(events.name[graph.moments.event[blocking]])
    copying = {COPY.match(trace.strings[int(name)]) is not None for name in callers}
    work = calls(trace)[0]
    has = (
        Category.DATALOADER in kinds,
        False in copying,
        True in copying,
        bool((graph.waits.kind == KINDS.index("launch")).any()),
        Category.COMM in kinds,
        len(work) > 0,
    )
    kernel = work[events.category[work] == Category.KERNEL]
    longest = [("kernel", kernel), ("operator", np.flatnonzero(is_operator(trace)))]
    named = [f"{what}[{name}]*0.5" for what, rows in longest for name in _longest(trace, rows)]
    return [*(text for text, there in zip(WHOLE, has, strict=True) if there), *named]


def _longest(trace: Trace, rows: Rows) -> list[str]:
    """The names whose events take the most time; none, or one with a bracket or a semicolon, cannot be written down."""
    name = trace.events.name[rows]
    spent = np.bincount(name, np.maximum(trace.events.dur[rows], 0), len(trace.strings))
    order = np.argsort(-spent, kind="stable")[:MOST]
    texts = [trace.strings[int(i)] for i in order if spent[i] > 0]
    return [text for text in texts if text and "]" not in text and ";" not in text]


def _apply(trace: Trace, graph: Graph, change: Change, dur: Floats, ns: Floats) -> bool:
    """Does the recording have what it is about?"""
    moments, waits = graph.moments, graph.waits
    back = np.flatnonzero(waits.kind == KINDS.index("return"))
    if change.word in ("remove", "async"):
        names = trace.events.name[moments.event[waits.dst[back]]]
        copies = np.array([COPY.match(trace.strings[int(name)]) is not None for name in names], bool)
        back = back[copies == (change.what == "copies")]
        ns[back] = -np.inf
        return len(back) > 0
    work, host = meant(trace, change)
    since = int(graph.marks[0]) if len(graph.marks) else 0  # what is before the first step stays as it was
    mine = np.flatnonzero((moments.line < 0) & work[moments.event])
    mine = mine[mine >= since]
    dur[mine] *= change.factor
    if change.what == "launch":
        ns[(waits.kind == KINDS.index("launch")) & (waits.dst > since)] *= change.factor
    if change.what in ("host", "operator") and change.factor == 0 and len(back):  # what is not called does not wait
        call = moments.event[waits.dst[back]]
        ns[back[nearest_ancestor(trace.events.parent, host, call) >= 0]] = -np.inf
    events, kept, less = trace.events, 0, 1 - change.factor
    if change.word == "pinned":
        kept, less = CALL_NS, 1.0
    for line, tracks in enumerate(graph.tracks if host.any() else ()):
        rows = np.flatnonzero(host & one_of(events.track, tracks) & (events.dur > kept))
        edges = np.flatnonzero((waits.kind <= KINDS.index("call")) & (moments.line[waits.dst] == line))
        edges = edges[waits.dst[edges] > since]
        spans = union(events.ts[rows] + kept, events.end[rows]) - trace.span_ns[0]
        spent = covered(spans, moments.at[waits.src[edges]], moments.at[waits.dst[edges]])
        ns[edges] = np.maximum(ns[edges] - less * spent, 0)
    return bool(len(mine) or host.any())


def meant(trace: Trace, change: Change) -> tuple[Mask, Mask]:
    """Of each event: is it device work, or time of a thread, that the change is about?"""
    events = trace.events
    nothing = np.zeros(len(events), bool)
    named = np.array([change.holds(name) for name in trace.strings], bool)[events.name]
    threads = trace.track_mask(TrackKind.THREAD) & (events.dur > 0)
    work, call, _ = calls(trace)
    if change.word == "pinned":
        pageable = np.array([PAGEABLE in name for name in trace.strings], bool)[events.name[work]]
        host = np.array(nothing)
        host[call[pageable & (call >= 0)]] = True
        return nothing, host
    if change.what in DEVICE:
        on_device = named & events.category_mask(*DEVICE[change.what]) & trace.track_mask(TrackKind.STREAM)
        # Where no collective runs on a device, they are work of threads.
        alone = change.what == "collective" and not (events.category[work] == Category.COMM).any()
        return on_device, named & threads & (events.category == Category.COMM) if alone else nothing
    if change.what == "host":
        return nothing, named & threads
    if change.what == "dataloader":
        return nothing, threads & (events.category == Category.DATALOADER)
    if change.what == "launch":
        host = np.array(nothing)
        host[call[call >= 0]] = True
        return nothing, host
    meant = named & is_operator(trace)
    owned = np.array(nothing)
    joined = launches(trace)
    inside = np.where(joined.place != joined.issue, joined.place, call)  # of captured graphs their operators
    owned[work[nearest_ancestor(events.parent, meant, inside) >= 0]] = True
    return owned, meant
