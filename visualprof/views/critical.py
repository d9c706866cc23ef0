"""Critical path: the chain of work and waits that determines the duration of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Category, Mask, Trace, TrackKind
from visualprof.views import Params, View
from visualprof.views.answers import charts, kinds
from visualprof.views.answers.kinds import Column
from visualprof.views.answers.table import Columns, Table, take_rows
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.timing import name_texts, sort_columns
from visualprof.views.measure.launches.launch import RANGE_CATEGORIES, is_device_work, is_operator
from visualprof.views.measure.operators.self_time import self_times, sum_by_name
from visualprof.views.measure.replay.graph import DEPENDENCY_KINDS, WaitGraph
from visualprof.views.measure.replay.path import (
    CriticalPath,
    PathPartColumns,
    PathScope,
    concatenate_paths,
    critical_path,
    full_scope,
    path_parts,
    replay_window,
    thread_scope,
)
from visualprof.views.measure.replay.path_pieces import (
    BaselineReplay,
    baseline_path,
    baseline_replay,
    event_slacks,
    path_device_work,
    path_host_spans,
    path_pieces,
)
from visualprof.views.measure.steps.windows import step_indices

MAX_RANGES = 50  # range names in the answer
MAX_PIECES = 60  # pieces in the table
MIN_PATH_RATIO = 0.6  # a path that explains a smaller share of the measured time gets a note


class CriticalColumns(Columns):
    """Time on the path by name: device work, and self time of host events.

    Attributes:
        name: Name; "" for host time outside of all events.
        pieces: Number of device work items or host events on the path.
    """

    name: kinds.NameColumn
    category: kinds.WordColumn
    path_ns: kinds.DurationColumn
    share: kinds.RatioColumn
    pieces: kinds.CountColumn


class PieceColumns(Columns):
    """The longest intervals of the path that stay in one place.

    Attributes:
        name: Device work, or the event with the most self time in an interval of the host.
        name_ns: Self time of that event in the interval; null without an event.
        start_ns: Since the first event, as measured.
        end_ns: Since the first event, as measured.
    """

    duration_ns: kinds.DurationColumn
    part: kinds.WordColumn
    name: kinds.NameColumn
    name_ns: kinds.DurationColumn
    start_ns: kinds.DurationColumn
    end_ns: kinds.DurationColumn
    track: kinds.IdentifierColumn


class SlackColumns(Columns):
    """Work that is not on the path, by name, with its slack: how much longer it may take before the recording does.

    Attributes:
        calls: Calls that are not on the path.
        slack_ns: The smallest slack of these calls.
        mean_slack_ns: Mean of the finite slacks.
    """

    name: kinds.NameColumn
    category: kinds.WordColumn
    calls: kinds.CountColumn
    total_ns: kinds.DurationColumn
    slack_ns: kinds.DurationColumn
    mean_slack_ns: kinds.DurationColumn


@dataclass(frozen=True)
class CriticalParams(Params):
    """Parameters of the view.

    Attributes:
        range: Name of an annotated range (`record_function`, NVTX). The path of each of its calls is computed.
    """

    range: str = ""


class CriticalAnswer(Table[CriticalColumns]):
    """The path through all steps, one step, or the calls of a range.

    Attributes:
        measured_ns: Duration of the recording.
        path_ns: Duration of its replay, which is the length of the path.
        stretches: Intervals that make up the path.
        unexplained_ratio: Share of the recording in which device work started later than all its known dependencies; at
            most 1.
        notes: Ids of notes about information that the recording lacks.
        ranges: Values that the parameter `range` accepts, by total time.
        slack: Slack of the whole recording.
    """

    measured_ns: kinds.Duration
    path_ns: kinds.Duration
    stretches: kinds.Count
    unexplained_ratio: kinds.Ratio
    notes: list[str]
    ranges: list[str]
    parts: Table[PathPartColumns]
    longest: Table[PieceColumns]
    slack: Table[SlackColumns]


def needs(trace: Trace) -> bool:
    """Whether the trace has device work. Without any, the path is the thread itself."""
    return bool(is_device_work(trace).any())


def compute(trace: Trace, params: CriticalParams) -> CriticalAnswer:
    """Return the path from the start of the first step to the end of the last step and all device work, or in a scope.

    Raises:
        BadParameter: There is no such step or range.

    Source: docs/views/critical.md
    """
    base = baseline_replay(trace)
    graph, replay, dur, ns = base.graph, base.replay, base.dur, base.graph.edges.delay_ns
    scopes = _scopes(trace, base, params)
    is_whole = not params.range and not params.step
    paths = [baseline_path(trace)] if is_whole else [critical_path(graph, replay, dur, ns, scope) for scope in scopes]
    path = concatenate_paths(paths)
    path_ns = round(float(path.wait_ns.sum() + path.work_ns.sum()))
    measured_ns = sum(scope.high - scope.low for scope in scopes)
    begun, ended, _ = replay_window(graph, graph.nodes.time.astype(np.float64), dur)
    return CriticalAnswer(
        columns=_names(trace, graph, path, max(float(path_ns), 1.0)),
        measured_ns=measured_ns,
        path_ns=path_ns,
        stretches=len(scopes),
        unexplained_ratio=min(graph.unexplained_ns / (ended - begun), 1.0) if ended > begun else 0.0,
        notes=_notes(trace, graph, path_ns / measured_ns if measured_ns else 1.0),
        ranges=_ranges(trace),
        parts=Table(columns=path_parts(trace, graph, path)),
        longest=Table(columns=_longest(trace, graph, path)),
        slack=Table(columns=_slack(trace)),
    )


def _scopes(trace: Trace, base: BaselineReplay, params: CriticalParams) -> list[PathScope]:
    """Return the intervals to compute the path in. They do not overlap."""
    if not params.range and not params.step:
        return [full_scope(base.graph, base.replay, base.dur)]
    events = trace.events
    if params.range:
        rows = np.flatnonzero(_is_range(trace))
        rows = rows[events.name[rows] == _name_id(trace, params.range)]
        if not len(rows):
            raise BadParameter(
                msg("views.there_no_range", f"there is no range {params.range!r}"),
                msg("views.ranges", f"ranges: {', '.join(_ranges(trace)[:20]) or '-'}"),
            )
        rows = rows[np.argsort(events.ts[rows], kind="stable")]
        spans = np.stack((events.ts[rows], events.end[rows], events.track[rows]), axis=1)
    else:
        steps, chosen = trace.steps, step_indices(trace, params.step)
        spans = np.stack((steps.ts, steps.ts + steps.dur, steps.track), axis=1)[chosen].astype(np.int64)
    spans[:, :2] -= trace.span_ns[0]
    scopes, reached = list[PathScope](), np.iinfo(np.int64).min
    for low, high, track in spans.tolist():
        line = next((i for i, tracks in enumerate(base.graph.group_tracks) if track in tracks), 0)
        if low >= reached:  # skip scopes of other threads and scopes inside the previous one
            scopes.append(thread_scope(base.graph, base.replay, base.dur, line, low, high))
            reached = high
    return scopes


def _is_range(trace: Trace) -> Mask:
    return trace.events.category_mask(*RANGE_CATEGORIES) & trace.track_mask(TrackKind.THREAD) & (trace.events.dur > 0)


def _name_id(trace: Trace, name: str) -> int:
    return trace.strings.index(name) if name in trace.strings else -1


def _ranges(trace: Trace) -> list[str]:
    rows = np.flatnonzero(_is_range(trace))
    groups = group(trace.events.name[rows])
    order = np.argsort(-groups.sum(trace.events.dur[rows]), kind="stable")[:MAX_RANGES]
    return name_texts(trace, trace.events.name[rows][groups.first[order]])


def _notes(trace: Trace, graph: WaitGraph, path_ratio: float) -> list[str]:
    """Return the ids of notes: no steps, no launching call for most of the device work, or a path that is too short.

    Args:
        trace: The trace.
        graph: Its wait graph.
        path_ratio: Length of the path relative to the measured time.
    """
    launched = int((graph.edges.kind == DEPENDENCY_KINDS.index("launch")).sum())
    lacking = {
        "no_steps": not len(trace.steps),
        "no_launches": 2 * launched < int((graph.nodes.thread_group < 0).sum()),
        "short_path": path_ratio < MIN_PATH_RATIO,
    }
    return [note for note, holds in lacking.items() if holds]


def _slack(trace: Trace) -> SlackColumns:
    """Return the slack of work that is not on the path, the smallest first."""
    events, path = trace.events, path_pieces(trace)
    base = baseline_replay(trace)
    scope = full_scope(base.graph, base.replay, base.dur)
    low, high = scope.low + trace.span_ns[0], scope.high + trace.span_ns[0]
    wanted = (is_operator(trace) | is_device_work(trace)) & (events.ts >= low) & (events.end <= high)
    wanted[path.event[path.event >= 0]] = False
    rows = np.flatnonzero(wanted)
    slack = event_slacks(trace, rows)
    off = slack >= 0.5  # less is on the path, up to rounding; NaN is unknown
    rows, slack = rows[off], slack[off]
    groups = group(events.name[rows], events.category[rows])
    ends = np.isfinite(slack)
    least = np.full(len(groups.first), np.inf)
    np.minimum.at(least, groups.ids, slack)
    ended, summed = (np.bincount(groups.ids, values, len(least)) for values in (ends, np.where(ends, slack, 0)))
    columns: dict[str, Column] = {
        "name": name_texts(trace, events.name[rows][groups.first]),
        "category": [Category(int(c)).name.lower() for c in events.category[rows][groups.first]],
        "calls": groups.count,
        "total_ns": groups.sum(events.dur[rows]),
        "slack_ns": np.where(np.isfinite(least), least, np.nan),
        "mean_slack_ns": np.where(ended > 0, summed / np.maximum(ended, 1), np.nan),
    }
    order = np.argsort(least, kind="stable")
    return SlackColumns(**{name: take_rows(values, order) for name, values in columns.items()})


def make_charts(result: CriticalAnswer, params: CriticalParams, top: int) -> dict[str, charts.Option]:
    """Return the chart `path`: time on the path by kind."""
    shown = result.parts.columns
    slices = [(f"@t:idle.part.{part}", ns) for part, ns in zip(shown.part, shown.path_ns, strict=True)]
    return {"path": charts.pie(slices, colors=True)}


def _names(trace: Trace, graph: WaitGraph, path: CriticalPath, total: float) -> CriticalColumns:
    events = trace.events
    rows, ns = path_device_work(graph, path)
    groups = group(events.name[rows], events.category[rows])
    line_times = [
        self_times(trace, tracks, path_host_spans(trace, graph, path, line))
        for line, tracks in enumerate(graph.group_tracks)
    ]
    host, outside = sum_by_name(trace, line_times), sum(item.outside_ns for item in line_times)
    extra: list[int] = [outside] if outside else []
    spent = np.concatenate((groups.sum(ns), host.ns, np.array(extra, np.int64)))
    categories = [Category(int(c)).name.lower() for c in events.category[rows][groups.first]]
    columns: dict[str, Column] = {
        "name": [*name_texts(trace, events.name[rows][groups.first]), *host.name, *("" for _ in extra)],
        "category": [*categories, *host.category, *(None for _ in extra)],
        "path_ns": spent,
        "share": spent / total,
        "pieces": np.concatenate((groups.count, host.calls, np.full(len(extra), np.nan))),
    }
    return CriticalColumns(**sort_columns(columns, "path_ns"))


def _longest(trace: Trace, graph: WaitGraph, path: CriticalPath) -> PieceColumns:
    """Return the longest pieces: device work, and intervals of a host line."""
    events, first = trace.events, trace.span_ns[0]
    rows = path_device_work(graph, path)[0]
    pieces = [(int(events.ts[row]), int(events.end[row]), int(row), -1) for row in rows]
    for line in range(len(graph.group_tracks)):
        pieces += [(low, high, -1, line) for low, high in path_host_spans(trace, graph, path, line).tolist()]
    pieces = sorted(pieces, key=lambda piece: piece[0] - piece[1])[:MAX_PIECES]
    names = [
        (trace.strings[int(events.name[row])], high - low)
        if row >= 0
        else _longest_of(trace, graph.group_tracks[line], low, high)
        for low, high, row, line in pieces
    ]
    return PieceColumns(
        duration_ns=[high - low for low, high, _, _ in pieces],
        part=["host" if row < 0 else "device" for _, _, row, _ in pieces],
        name=[name for name, _ in names],
        name_ns=[ns for _, ns in names],
        start_ns=[low - first for low, _, _, _ in pieces],
        end_ns=[high - first for _, high, _, _ in pieces],
        track=[int(events.track[row]) if row >= 0 else graph.group_tracks[line][0] for _, _, row, line in pieces],
    )


def _longest_of(trace: Trace, tracks: Sequence[int], low: int, high: int) -> tuple[str, int | None]:
    """Return the name with the most self time of some threads in an interval, and that time; "" without events."""
    self_time = sum_by_name(trace, [self_times(trace, tracks, np.array([[low, high]]))])
    longest = int(self_time.ns.argmax()) if self_time.name else -1
    return (self_time.name[longest], int(self_time.ns[longest])) if longest >= 0 else ("", None)


VIEW = View("critical", 47, needs, CriticalParams, compute, make_charts)
