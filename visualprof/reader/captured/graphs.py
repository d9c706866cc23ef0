"""What the trace of a capture says of its graphs: the launch calls in order, and the operators around each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Rows, Trace, TrackKind

LAUNCH = pattern(r"^(cuda|cu|hip)\w*(Launch\w*Kernel|Memcpy|Memset)|^cuLaunchKernel")
KINDS = {"memcpy": "\0memcpy", "memset": "\0memset"}  # stand for the names of what is no kernel
BLITS = (("copyBuffer", KINDS["memcpy"]), ("fillBuffer", KINDS["memset"]))  # kernels that AMD's runtime copies with
INSIDE = frozenset(map(int, (Category.OP, Category.COMM, Category.MODULE, Category.ANNOTATION)))
FRAMES = frozenset(map(int, (Category.PYTHON, Category.MODULE)))
OPERATORS = frozenset(map(int, (Category.OP, Category.COMM)))
NOT_COPIED = ("external_id", "sequence", "kernel", "call_stack")
BEGIN_CAPTURE, END_CAPTURE = "BeginCapture", "EndCapture"
_LABEL = re.compile(r"^capture_(\d+)_\w+$")
_BATCH = re.compile(r"(?:^bs|capture)_(\d+)(?!\d)")


class Node(msgspec.Struct, frozen=True):
    """An operator, module or range in a capture. parent: in the nodes, -1 outside of all. args: numbers, and texts."""

    name: str
    category: int
    parent: int
    args: dict[str, float] = {}
    texts: dict[str, int] = {}


class CapturedGraph(msgspec.Struct, frozen=True):
    """One graph. batch: -1 unknown. names: (k,) of the kernel that each call launches, in order, "" unknown.

    inner: (k,) the innermost node around each call, -1 for none. nodes: those around stand before those inside.
    """

    file: str
    label: str
    batch: int
    names: tuple[str, ...]
    inner: tuple[int, ...]
    nodes: tuple[Node, ...]

    @property
    def of_requests(self) -> bool:
        """Is its batch of requests (SGLang), and not of their tokens? These are several of each that is drafted for."""
        return self.file.startswith("bs_")


class Capture(msgspec.Struct, frozen=True):
    """The graphs of a file. texts: what nodes point to. problems: of what could not be used, and why."""

    graphs: tuple[CapturedGraph, ...]
    texts: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class _Window(msgspec.Struct, frozen=True):
    """start, end: ns. row: of the call or range that began it."""

    start: int
    end: int
    row: int


def graphs_of(trace: Trace, file: str) -> Capture:
    """The graphs whose capture a trace recorded. file: its name.

    A graph is what was launched from a call that begins a capture to the one that ends it, or, where the file has no
    such calls, within `capture_<batch>_<mode>`, or all. Cost: about 20 us a launch, deep stacks included.
    """
    calls, names = _launch_calls(trace)
    texts: dict[str, int] = {}
    graphs, problems = list[CapturedGraph](), list[str]()
    ts, until = trace.events.ts[calls], np.iinfo(np.int64).min
    for window in _windows(trace, calls):
        if window.end < 0 or window.start < until:  # two at a time: whose the launches are is not known
            problems.append(msg("reader.capture_graph_not_end", f"{file}: the capture of a graph does not end in it"))
            continue
        until = window.end
        low, high = np.searchsorted(ts, window.start), np.searchsorted(ts, window.end, side="right")
        if low < high:
            graphs.append(_graph(trace, file, window, calls[low:high], names[low:high], texts))
    if trace.meta.truncated:
        problems.append(msg("reader.ends_middle", f"{file}: it ends in the middle"))
    if not graphs and not problems:
        problems.append(msg("reader.no_launch_capture_recorded", f"{file}: it has no launch that a capture recorded"))
    return Capture(tuple(graphs), tuple(texts), tuple(dict.fromkeys(problems)))


def kernel_token(name: str, category: int) -> str:
    """By what a piece of device work is compared with the calls of a capture."""
    if category in (Category.MEMCPY, Category.MEMSET):
        return KINDS[Category(category).name.lower()]
    blit = next((token for part, token in BLITS if part in name), None)
    return blit or name.strip().removesuffix(".kd")


def _launch_calls(trace: Trace) -> tuple[Ints, list[str]]:
    """Rows of the calls that launched nothing while they were recorded, in order, and what each would launch."""
    events = trace.events
    mine = np.array([bool(LAUNCH.search(name)) for name in trace.strings], bool)
    chosen = (events.category == Category.RUNTIME) & mine[events.name]
    ran = np.zeros(len(events) + 1, bool)
    ran[trace.links.src[trace.links.kind == LinkKind.LAUNCH]] = True
    chosen &= ~ran[:-1]
    rows = np.flatnonzero(chosen)
    rows = rows[~np.append(chosen, False)[events.parent[rows]]]  # a driver's call inside the runtime's is the same
    rows = rows[np.argsort(events.ts[rows], kind="stable")]
    kernel = trace.arg("kernel", rows, 0).astype(np.int64) if "kernel" in trace.args else np.zeros(len(rows), np.int64)
    kernels: list[int] = kernel.tolist()
    return rows, [_call_token(trace, row, name) for row, name in zip(rows.tolist(), kernels, strict=True)]


def _call_token(trace: Trace, row: int, kernel: int) -> str:
    called = trace.strings[int(trace.events.name[row])].lower()
    token = next((token for kind, token in KINDS.items() if kind in called), "")
    if token or kernel:
        return token or kernel_token(trace.strings[kernel], Category.KERNEL)
    parent = int(trace.events.parent[row])
    while parent >= 0 and int(trace.events.category[parent]) in FRAMES:
        parent = int(trace.events.parent[parent])
    around = trace.strings[int(trace.events.name[parent])] if parent >= 0 else ""
    return around if around.startswith("triton_") else ""  # Inductor calls the operator as it calls the kernel


def _windows(trace: Trace, calls: Ints) -> Iterator[_Window]:
    events = trace.events
    runtime = events.category == Category.RUNTIME
    begins, ends = (
        np.flatnonzero(runtime & np.array([part in name for name in trace.strings], bool)[events.name])
        for part in (BEGIN_CAPTURE, END_CAPTURE)
    )
    borders = np.sort(np.concatenate((begins, ends)))  # by track and time
    after = np.append(borders, -1)[np.searchsorted(borders, begins) + 1]
    closed = (after >= 0) & ~np.isin(after, begins) & (events.track[after] == events.track[begins])
    close = np.where(closed, events.ts[after], -1)
    for i in np.argsort(events.ts[begins], kind="stable").tolist():
        yield _Window(int(events.ts[begins[i]]), int(close[i]), int(begins[i]))
    if len(begins):
        return
    labelled = np.array([bool(_LABEL.match(name)) for name in trace.strings], bool)[events.name]
    labelled &= (events.category == Category.ANNOTATION) & trace.track_mask(TrackKind.THREAD)
    ranges = np.flatnonzero(labelled)
    for row in ranges.tolist():
        yield _Window(int(events.ts[row]), int(events.end[row]), row)
    if not len(ranges) and len(calls):
        yield _Window(int(events.ts[calls[0]]), int(events.ts[calls[-1]]), int(calls[0]))


def _graph(
    trace: Trace, file: str, window: _Window, calls: Ints, names: Sequence[str], texts: dict[str, int]
) -> CapturedGraph:
    events, strings = trace.events, trace.strings
    outside = set(_above(trace, window.row, itself=True))
    labels = [strings[int(events.name[row])] for row in outside if _is_label(trace, row)]
    above: dict[int, int] = {}  # of each node the row of the one around it
    inner: list[int] = []
    for call in calls.tolist():
        chain = [row for row in _above(trace, call) if _is_inside(trace, row, outside)]
        above.update(zip(chain, [*chain[1:], -1], strict=False))
        inner.append(chain[0] if chain else -1)
    rows = sorted(above, key=lambda row: (int(events.ts[row]), -int(events.end[row]), row))
    place = {row: i for i, row in enumerate(rows)} | {-1: -1}
    args = _arguments(trace, np.array(rows, np.int32), texts)
    nodes = [
        Node(strings[int(events.name[row])], int(events.category[row]), place[above[row]], *own)
        for row, own in zip(rows, args, strict=True)
    ]
    named = _BATCH.search(labels[0] if labels else file)
    batch = min(int(named[1][:9]), 10**9) if named else -1
    label = labels[0] if labels else re.sub(r"\.json(\.gz)?$", "", file)
    return CapturedGraph(file, label, batch, tuple(names), tuple(place[row] for row in inner), tuple(nodes))


def _above(trace: Trace, row: int, itself: bool = False) -> Iterator[int]:
    """Rows of the events around one, the innermost first."""
    if itself:
        yield row
    parent = trace.events.parent
    while (row := int(parent[row])) >= 0:
        yield row


def _is_label(trace: Trace, row: int) -> bool:
    return trace.events.category[row] == Category.ANNOTATION and bool(
        _LABEL.match(trace.strings[int(trace.events.name[row])])
    )


def _is_inside(trace: Trace, row: int, outside: set[int]) -> bool:
    """Does an event around a call belong to the graph? Ranges around the whole capture are of the start-up."""
    category = int(trace.events.category[row])
    return category in INSIDE and not (category == Category.ANNOTATION and (row in outside or _is_label(trace, row)))


def _arguments(trace: Trace, rows: Ids, texts: dict[str, int]) -> Iterator[tuple[dict[str, float], dict[str, int]]]:
    """Numbers and texts of operators, by name, with their call stacks."""
    numbers: list[dict[str, float]] = [{} for _ in rows]
    words: list[dict[str, int]] = [{} for _ in rows]
    for name, column in trace.args.items():
        if name in NOT_COPIED:
            continue
        if column.text:
            ids: list[int] = column.values_at(rows, 0).tolist()
            for i, text in enumerate(ids):
                if text:
                    words[i][name] = texts.setdefault(trace.strings[text], len(texts))
        else:
            for i, value in enumerate(column.values_at(rows, np.nan).tolist()):
                if value == value:
                    numbers[i][name] = value
    for i, row in enumerate(rows.tolist()):
        if int(trace.events.category[row]) in OPERATORS and (stack := _stack(trace, row)):
            words[i]["call_stack"] = texts.setdefault(stack, len(texts))
    yield from zip(numbers, words, strict=True)


def _stack(trace: Trace, row: int) -> str:
    """Python frames around an operator up to the range of the capture, the innermost first; or what the file says."""
    frames: list[str] = []
    for above in _above(trace, row):
        if _is_label(trace, above):
            break
        if int(trace.events.category[above]) in FRAMES:
            frames.append(trace.strings[int(trace.events.name[above])])
    if frames or "call_stack" not in trace.args:
        return "; ".join(frames)
    rows: Rows = np.array([row], np.int32)
    return trace.strings[int(trace.arg("call_stack", rows, 0)[0])]
