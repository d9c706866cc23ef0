"""Changes of durations: their syntax and their effect on a wait graph.

Examples: `kernel[name~gemm]*0.5`, `dataloader=0`, `sync=remove`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import UNNAMED, Category, Floats, Ids, Ints, Mask, Rows, Trace, TrackKind
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.types import Bytes
from visualprof.views.measure.columns.groups import distinct, is_in
from visualprof.views.measure.columns.intervals import covered_ns, union
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.launches.answer_names import trace_short_names
from visualprof.views.measure.launches.launch import DEVICE_CATEGORIES, device_calls, is_operator, launches
from visualprof.views.measure.replay.build import COPY_CALL, NONBLOCKING_CALL_NS
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, WaitGraph

DEVICE_TARGETS = {
    "kernel": (Category.KERNEL, Category.COMM),
    "collective": (Category.COMM,),
    "copies": (Category.MEMCPY, Category.MEMSET),
    "gpu": DEVICE_CATEGORIES,
}
KIND_CHANGES = (
    "dataloader=0",
    "sync=remove",
    "copies=async",
    "launch=0",
    "collective*0.5",
    "gpu*0.5",
)  # of whole kinds
MAX_SUGGESTIONS = 5  # per kind
NAMED_TARGETS = ("kernel", "collective", "copies", "operator", "host", "rank")
TARGET_ACTIONS = {("sync", "remove"), ("copies", "async"), ("copies", "pinned"), ("rank", "median")}
PAGEABLE_COPY = "Pageable -> Device"
EXAMPLES = msg(
    "views.kernel_name_gemm_0",
    "kernel[name~gemm]*0.5, operator[aten::layer_norm]*0.3, host[cudaMalloc]=0, collective*0.5, gpu*0.6, dataloader=0, "
    "launch=0, sync=remove, copies=async, copies=pinned; in a run of several ranks rank[3]=median, rank[*]=median",
)
# Names may contain brackets, semicolons and line breaks.
_CHANGE_SYNTAX = re.compile(
    r"(?P<what>\w+)(?:\[(?P<part>name~)?(?P<name>.+?)\])?(?:\*(?P<factor>\d+(?:\.\d+)?)|=(?P<word>\w+))(?=\s*(?:;|\Z))",
    re.DOTALL,
)
_SEPARATORS = "; \t\r\n"


class Change(NamedTuple):
    """One change.

    Attributes:
        text: Text of the change.
        target: The part of the program that the change applies to.
        name: Exact name, full or short, or part of it in any case; "" for all names.
        is_partial: Whether `name` is a part of the name.
        factor: Factor of the time.
        action: `remove` and `async` end the waiting for the target; `pinned` removes the staging
            copy of pageable memory.
    """

    text: str
    target: str
    name: str = ""
    is_partial: bool = False
    factor: float = 1.0
    action: str = ""

    def matches(self, name: str) -> bool:
        """Return whether the change applies to something with a name."""
        return not self.name or (self.name.casefold() in name.casefold() if self.is_partial else self.name == name)


def parse_changes(text: str) -> list[Change]:
    """Return the changes in a text, separated by semicolons.

    Raises:
        BadParameter: One is not a change.
    """
    changes: list[Change] = []
    rest = text.strip(_SEPARATORS)
    while rest:
        match = _CHANGE_SYNTAX.match(rest)
        changes.append(_parse_change(match, match[0] if match else rest.partition(";")[0].rstrip()))
        rest = rest[len(changes[-1].text) :].lstrip(_SEPARATORS)
    return changes


def _parse_change(match: re.Match[str] | None, text: str) -> Change:
    """Return the change that `_CHANGE_SYNTAX` matched."""
    target, action = (match["what"], match["word"]) if match else ("", None)
    is_timed_target = match is not None and target in {*DEVICE_TARGETS, "operator", "host", "dataloader", "launch"}
    has_name = match is not None and match["name"] is not None
    is_timed = is_timed_target and action in (None, "0")
    if not match or not (is_timed or (target, action) in TARGET_ACTIONS) or (has_name and target not in NAMED_TARGETS):
        raise BadParameter(
            msg("views.no_change", f"{text[:80]!r} is no change"), msg("views.example", f"for example: {EXAMPLES}")
        )
    if target == "rank" and not re.fullmatch(r"\*|\d{1,6}", match["name"] or ""):
        raise BadParameter(
            msg("views.names_no_rank", f"{text[:80]!r} names no rank"), msg("views.example", f"for example: {EXAMPLES}")
        )
    factor = 1.0 if not is_timed else float(match["factor"] or 0)
    if factor > 1000:
        raise BadParameter(
            msg("views.thousand_times_most", f"{text[:80]!r}: a thousand times is the most"),
            msg("views.example", f"for example: {EXAMPLES}"),
        )
    return Change(text, target, match["name"] or "", bool(match["part"]), factor, "" if is_timed else action or "")


class ChangeEffect(NamedTuple):
    """The effect of one change on the nodes and edges of a wait graph. It does not depend on other changes.

    Attributes:
        work_nodes: Nodes of device work with another duration.
        scaled_edges: Edges with another delay.
        factor: Factor of these durations and delays.
        removed_edges: Edges that are no longer waited for.
        shortened_edges: Edges along a thread that become shorter, not below 0.
        shortened_ns: Time that each of them loses; negative if it becomes longer.
    """

    work_nodes: Ints
    scaled_edges: Ints
    factor: float
    removed_edges: Ints
    shortened_edges: Ints
    shortened_ns: Floats

    def apply(self, dur: Floats, delay_ns: Floats) -> None:
        """Apply the change to durations of device work and delays of edges, in place."""
        dur[self.work_nodes] *= self.factor
        delay_ns[self.scaled_edges] *= self.factor
        delay_ns[self.removed_edges] = -np.inf
        delay_ns[self.shortened_edges] = np.maximum(delay_ns[self.shortened_edges] - self.shortened_ns, 0)


def apply_changes(trace: Trace, graph: WaitGraph, changes: list[Change]) -> tuple[Floats, Floats]:
    """Return the durations of device work and the delays of edges after some changes, applied in order.

    Raises:
        BadParameter: A change does not apply to the recording.
    """
    dur, delay_ns = graph.nodes.dur.astype(np.float64), np.array(graph.edges.delay_ns)
    for effect in change_effects(trace, graph, changes):
        effect.apply(dur, delay_ns)
    return dur, delay_ns


def change_effects(trace: Trace, graph: WaitGraph, changes: list[Change]) -> list[ChangeEffect]:
    """Return the effects of some changes, in order.

    Raises:
        BadParameter: A change does not apply to the recording.
    """
    effects: list[ChangeEffect] = []
    for change in changes:
        if change.target == "rank":
            raise BadParameter(
                msg("views.about_several_ranks", f"{change.text} is about several ranks"),
                msg("views.choose_run_several_ranks", "choose a run of several ranks"),
            )
        effect = _change_effect(trace, graph, change)
        if effect is None:
            raise BadParameter(
                msg("views.recording_nothing", f"{change.text}: the recording has nothing of that"),
                _hint_of(trace, graph, change),
            )
        effects.append(effect)
    return effects


def _hint_of(trace: Trace, graph: WaitGraph, change: Change) -> str:
    """Return what to replay instead of a change that does not apply."""
    possible = [text for text in suggest_changes(trace, graph) if "[" not in text]
    if change.name or not possible:
        return msg("views.names_tables", "use names from the tables")
    return msg("views.changes_that_apply", f"changes that apply: {', '.join(possible)}")


def suggest_changes(trace: Trace, graph: WaitGraph) -> list[str]:
    """Return changes that apply to a recording.

    They are changes of whole kinds, and half the time of the longest kernels and operators.
    """
    events, categories = trace.events, set(distinct(trace.events.category).tolist())
    waiting_nodes = graph.edges.dst[graph.edges.kind == DEPENDENCY_KINDS.index("return")]
    caller_names = distinct(events.name[graph.nodes.event[waiting_nodes]])
    is_copy = {COPY_CALL.match(trace.strings[int(name)]) is not None for name in caller_names}
    work = device_calls(trace)[0]
    applies = (
        Category.DATALOADER in categories,
        False in is_copy,
        True in is_copy,
        bool((graph.edges.kind == DEPENDENCY_KINDS.index("launch")).any()),
        Category.COMM in categories,
        len(work) > 0,
    )
    kernel_rows = work[events.category[work] == Category.KERNEL]
    named_rows = [("kernel", kernel_rows), ("operator", np.flatnonzero(is_operator(trace)))]
    named_changes = [f"{target}[{name}]*0.5" for target, rows in named_rows for name in _longest_names(trace, rows)]
    return [*(text for text, is_applicable in zip(KIND_CHANGES, applies, strict=True) if is_applicable), *named_changes]


def _longest_names(trace: Trace, rows: Rows) -> list[str]:
    """Return the names whose events take the most time; names that the syntax cannot express are left out."""
    name = trace.events.name[rows]
    total_ns = np.bincount(name, np.maximum(trace.events.dur[rows], 0), len(trace.strings))
    order = np.argsort(-total_ns, kind="stable")[:MAX_SUGGESTIONS]
    texts = [trace.strings[int(name_id)] for name_id in order if total_ns[name_id] > 0]
    return [text for text in texts if text != UNNAMED and "]" not in text and ";" not in text]


def _change_effect(trace: Trace, graph: WaitGraph, change: Change) -> ChangeEffect | None:
    """Return the effect of one change, `None` if the recording has nothing that it applies to."""
    nodes, edges, no_rows = graph.nodes, graph.edges, np.zeros(0, np.int64)
    return_edges = np.flatnonzero(edges.kind == DEPENDENCY_KINDS.index("return"))
    if change.action in ("remove", "async"):
        call_names = trace.events.name[nodes.event[edges.dst[return_edges]]]
        is_copy = np.array([COPY_CALL.match(trace.strings[int(name)]) is not None for name in call_names], bool)
        removed = return_edges[is_copy == (change.target == "copies")]
        return ChangeEffect(no_rows, no_rows, 1.0, removed, no_rows, np.zeros(0)) if len(removed) else None
    is_work, is_host = affected_events(trace, change)
    first_node = int(graph.step_nodes[0]) if len(graph.step_nodes) else 0  # nodes before the first step do not change
    work_nodes = graph.work_nodes[np.searchsorted(graph.work_nodes, first_node) :]
    work_nodes = work_nodes[is_work[nodes.event[work_nodes]]]
    if not (len(work_nodes) or is_host.any()):
        return None
    scaled, removed = no_rows, no_rows
    if change.target == "launch":
        scaled = np.flatnonzero((edges.kind == DEPENDENCY_KINDS.index("launch")) & (edges.dst > first_node))
    if change.target in ("host", "operator") and change.factor == 0 and len(return_edges):
        waiting_calls = nodes.event[edges.dst[return_edges]]  # a removed call does not wait
        removed = return_edges[nearest_ancestor(trace.events.parent, is_host, waiting_calls) >= 0]
    if change.action == "pinned":  # such a copy does not wait for its stream either, which its operator does
        owners = trace.events.parent[np.flatnonzero(is_host)]
        waiting_owners = trace.events.parent[nodes.event[edges.dst[return_edges]]]
        removed = return_edges[is_in(waiting_owners, distinct(owners[owners >= 0]))]
    shortened, shortened_ns = _shortened_edges(trace, graph, change, is_host, first_node)
    return ChangeEffect(work_nodes, scaled, change.factor, removed, shortened, shortened_ns)


def _shortened_edges(
    trace: Trace, graph: WaitGraph, change: Change, is_host: Mask, first_node: int
) -> tuple[Ints, Floats]:
    """Return the edges along threads that a change of some thread time shortens, and by how much."""
    events, kept_ns, reduction = trace.events, 0, 1 - change.factor
    if change.action == "pinned":
        kept_ns, reduction = NONBLOCKING_CALL_NS, 1.0
    shortened: list[Ints] = [np.zeros(0, np.int64)]
    shortened_ns: list[Floats] = [np.zeros(0)]
    host_rows = np.flatnonzero(is_host)
    host_rows = host_rows[events.dur[host_rows] > kept_ns]
    for tracks, group_edges in zip(graph.group_tracks, graph.host_edges, strict=True):
        rows = host_rows[is_in(events.track[host_rows], tracks)]
        if not len(rows):
            continue
        spans = union(events.ts[rows] + kept_ns, events.end[rows]) - trace.span_ns[0]
        covered = covered_ns(spans, group_edges.start, group_edges.end)
        covered_edges = np.flatnonzero(covered > 0)
        covered_edges = covered_edges[graph.edges.dst[group_edges.rows[covered_edges]] > first_node]
        shortened.append(group_edges.rows[covered_edges])
        shortened_ns.append((reduction * covered[covered_edges]).astype(np.float64))
    return np.concatenate(shortened), np.concatenate(shortened_ns)


def affected_events(trace: Trace, change: Change) -> tuple[Mask, Mask]:
    """Return, per event, whether it is device work, and whether it is thread time, that the change applies to."""
    events = trace.events
    no_events = np.zeros(len(events), bool)
    short = trace_short_names(trace)
    named = [change.matches(name) or change.matches(short.get(name, "")) for name in trace.strings]
    has_name = np.array(named, bool)
    work, call, _ = device_calls(trace)
    if change.action == "pinned":
        is_pageable = np.array([PAGEABLE_COPY in name for name in trace.strings], bool)[events.name[work]]
        is_host = np.array(no_events)
        is_host[call[is_pageable & (call >= 0)]] = True
        return no_events, is_host
    if change.target in DEVICE_TARGETS:
        is_on_device = np.array(no_events)
        rows, names, categories = _device_events(trace)
        is_on_device[rows[has_name[names] & is_in(categories, DEVICE_TARGETS[change.target])]] = True
        # If no collective runs on a device, collectives are work of threads.
        only_on_threads = change.target == "collective" and not (events.category[work] == Category.COMM).any()
        if not only_on_threads:
            return is_on_device, no_events
        return is_on_device, has_name[events.name] & _is_thread_time(trace) & (events.category == Category.COMM)
    if change.target == "host":
        return no_events, has_name[events.name] & _is_thread_time(trace)
    if change.target == "dataloader":
        return no_events, _is_thread_time(trace) & (events.category == Category.DATALOADER)
    if change.target == "launch":
        is_host = np.array(no_events)
        is_host[call[call >= 0]] = True
        return no_events, is_host
    rows, names = _operators(trace)
    is_affected, is_owned = np.array(no_events), no_events
    is_affected[rows[has_name[names]]] = True
    is_owned[work[nearest_ancestor(events.parent, is_affected, _launch_sites(trace)) >= 0]] = True
    return is_owned, is_affected


@cached_on_trace
def _operators(trace: Trace) -> tuple[Rows, Ids]:
    """Return the operators and their names."""
    rows = np.flatnonzero(is_operator(trace)).astype(np.int32)
    return rows, trace.events.name[rows]


@cached_on_trace
def _launch_sites(trace: Trace) -> Ids:
    """Return the call that launched each piece of device work; for captured graphs, its operator."""
    launched = launches(trace)
    return np.where(launched.site != launched.issuer, launched.site, device_calls(trace)[1])


@cached_on_trace
def _is_thread_time(trace: Trace) -> Mask:
    """Return, per event, whether it takes time of a thread."""
    return trace.track_mask(TrackKind.THREAD) & (trace.events.dur > 0)


@cached_on_trace
def _device_events(trace: Trace) -> tuple[Rows, Ids, Bytes]:
    """Return the events on streams of devices, their names and categories."""
    rows = np.flatnonzero(trace.track_mask(TrackKind.STREAM)).astype(np.int32)
    return rows, trace.events.name[rows], trace.events.category[rows]
