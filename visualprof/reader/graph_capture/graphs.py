"""Extract captured graphs from the trace of their capture: the launch calls in order, and the operators around each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from visualprof.messages import msg
from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Category, Ids, Ints, LinkKind, Rows, Trace, TrackKind

LAUNCH_CALL = pattern(r"^(cuda|cu|hip)\w*(Launch\w*Kernel|Memcpy|Memset)|^cuLaunchKernel")
COPY_TOKENS = {"memcpy": "\0memcpy", "memset": "\0memset"}  # stand for the names of work that is not a kernel
# Kernels with which AMD's runtime copies and fills.
BLIT_KERNELS = (("copyBuffer", COPY_TOKENS["memcpy"]), ("fillBuffer", COPY_TOKENS["memset"]))
NODE_CATEGORIES = frozenset(map(int, (Category.OP, Category.COMM, Category.MODULE, Category.ANNOTATION)))
FRAME_CATEGORIES = frozenset(map(int, (Category.PYTHON, Category.MODULE)))
OPERATOR_CATEGORIES = frozenset(map(int, (Category.OP, Category.COMM)))
SKIPPED_ARGUMENTS = ("external_id", "sequence", "kernel", "call_stack")
BEGIN_CAPTURE, END_CAPTURE = "BeginCapture", "EndCapture"
_LABEL = re.compile(r"^capture_(\d+)_\w+$")
_BATCH = re.compile(r"(?:^bs|capture)_(\d+)(?!\d)")


class CaptureNode(msgspec.Struct, frozen=True):
    """An operator, module or range in a capture.

    Attributes:
        name: The name.
        category: A `Category`.
        parent: Index of the parent node, -1 at the top.
        args: Numeric arguments.
        texts: Text arguments, as indices of the capture's texts.
    """

    name: str
    category: int
    parent: int
    args: dict[str, float] = {}
    texts: dict[str, int] = {}


class CapturedGraph(msgspec.Struct, frozen=True):
    """One graph.

    Attributes:
        file: Name of the capture file.
        label: Name of the graph.
        batch: Batch size, -1 if unknown.
        names: (k,) name of the kernel that each call launches, in order, "" if unknown.
        innermost: (k,) the innermost node around each call, -1 for none.
        nodes: The nodes; parents come before their children.
    """

    file: str
    label: str
    batch: int
    names: tuple[str, ...]
    innermost: tuple[int, ...]
    nodes: tuple[CaptureNode, ...]

    @property
    def batch_counts_requests(self) -> bool:
        """Whether the batch counts requests (SGLang) rather than tokens. With drafts a request has several tokens."""
        return self.file.startswith("bs_")


class Capture(msgspec.Struct, frozen=True):
    """The graphs of a file.

    Attributes:
        graphs: The graphs.
        texts: Texts to which nodes refer.
        problems: What could not be used, and why.
    """

    graphs: tuple[CapturedGraph, ...]
    texts: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class _Window(msgspec.Struct, frozen=True):
    """The time range of a capture.

    Attributes:
        start: Start in ns.
        end: End in ns, negative if the capture does not end.
        row: The call or range that started it.
    """

    start: int
    end: int
    row: int


def extract_graphs(trace: Trace, file: str) -> Capture:
    """Return the graphs whose capture a trace recorded; `file` is its name.

    A graph consists of the launches between a call that begins a capture and the call that ends it. In files without
    such calls it is the range `capture_<batch>_<mode>`, else the whole file. Cost: about 20 us per launch, including
    deep stacks.
    """
    calls, names = _launch_calls(trace)
    texts: dict[str, int] = {}
    graphs, problems = list[CapturedGraph](), list[str]()
    ts, until = trace.events.ts[calls], np.iinfo(np.int64).min
    for window in _windows(trace, calls):
        if window.end < 0 or window.start < until:  # overlapping captures: the launches cannot be assigned
            problems.append(msg("reader.capture_graph_not_end", f"{file}: the capture of a graph does not end in it"))
            continue
        until = window.end
        low, high = np.searchsorted(ts, window.start), np.searchsorted(ts, window.end, side="right")
        if low < high:
            graphs.append(_build_graph(trace, file, window, calls[low:high], names[low:high], texts))
    if trace.meta.truncated:
        problems.append(msg("reader.ends_middle", f"{file}: it ends in the middle"))
    if not graphs and not problems:
        problems.append(msg("reader.no_launch_capture_recorded", f"{file}: it has no launch that a capture recorded"))
    return Capture(tuple(graphs), tuple(texts), tuple(dict.fromkeys(problems)))


def kernel_token(name: str, category: int) -> str:
    """Return the token by which device work is compared with the calls of a capture."""
    if category in (Category.MEMCPY, Category.MEMSET):
        return COPY_TOKENS[Category(category).name.lower()]
    blit = next((token for kernel_part, token in BLIT_KERNELS if kernel_part in name), None)
    return blit or name.strip().removesuffix(".kd")


def _launch_calls(trace: Trace) -> tuple[Ints, list[str]]:
    """Return the rows of calls that launched nothing while they were captured, in order, and the token of each."""
    events = trace.events
    is_launch_name = np.array([bool(LAUNCH_CALL.search(name)) for name in trace.strings], bool)
    is_launch = (events.category == Category.RUNTIME) & is_launch_name[events.name]
    has_work = np.zeros(len(events) + 1, bool)
    has_work[trace.links.src[trace.links.kind == LinkKind.LAUNCH]] = True
    is_launch &= ~has_work[:-1]
    rows = np.flatnonzero(is_launch)
    # A driver call inside the runtime call is the same launch
    rows = rows[~np.append(is_launch, False)[events.parent[rows]]]
    rows = rows[np.argsort(events.ts[rows], kind="stable")]
    kernel = trace.arg("kernel", rows, 0).astype(np.int64) if "kernel" in trace.args else np.zeros(len(rows), np.int64)
    kernels: list[int] = kernel.tolist()
    return rows, [_call_token(trace, row, name) for row, name in zip(rows.tolist(), kernels, strict=True)]


def _call_token(trace: Trace, row: int, kernel: int) -> str:
    """Return the token of the work that a call would launch, "" if unknown."""
    call_name = trace.strings[int(trace.events.name[row])].lower()
    token = next((token for kind, token in COPY_TOKENS.items() if kind in call_name), "")
    if token or kernel:
        return token or kernel_token(trace.strings[kernel], Category.KERNEL)
    parent = int(trace.events.parent[row])
    while parent >= 0 and int(trace.events.category[parent]) in FRAME_CATEGORIES:
        parent = int(trace.events.parent[parent])
    enclosing_name = trace.strings[int(trace.events.name[parent])] if parent >= 0 else ""
    return (
        enclosing_name if enclosing_name.startswith("triton_") else ""
    )  # Inductor gives the operator the kernel's name


def _windows(trace: Trace, calls: Ints) -> Iterator[_Window]:
    """Yield the time ranges of the captures."""
    events = trace.events
    runtime = events.category == Category.RUNTIME
    begin_calls, end_calls = (
        np.flatnonzero(runtime & np.array([call_name in name for name in trace.strings], bool)[events.name])
        for call_name in (BEGIN_CAPTURE, END_CAPTURE)
    )
    borders = np.sort(np.concatenate((begin_calls, end_calls)))  # sorted by track and time
    next_border = np.append(borders, -1)[np.searchsorted(borders, begin_calls) + 1]
    closed = (
        (next_border >= 0)
        & ~np.isin(next_border, begin_calls)
        & (events.track[next_border] == events.track[begin_calls])
    )
    close = np.where(closed, events.ts[next_border], -1)
    for i in np.argsort(events.ts[begin_calls], kind="stable").tolist():
        yield _Window(int(events.ts[begin_calls[i]]), int(close[i]), int(begin_calls[i]))
    if len(begin_calls):
        return
    is_label = np.array([bool(_LABEL.match(name)) for name in trace.strings], bool)[events.name]
    is_label &= (events.category == Category.ANNOTATION) & trace.track_mask(TrackKind.THREAD)
    ranges = np.flatnonzero(is_label)
    for row in ranges.tolist():
        yield _Window(int(events.ts[row]), int(events.end[row]), row)
    if not len(ranges) and len(calls):
        yield _Window(int(events.ts[calls[0]]), int(events.ts[calls[-1]]), int(calls[0]))


def _build_graph(
    trace: Trace, file: str, window: _Window, calls: Ints, names: Sequence[str], texts: dict[str, int]
) -> CapturedGraph:
    """Return the graph of one capture."""
    events, strings = trace.events, trace.strings
    outer_rows = set(_ancestors(trace, window.row, include_row=True))
    labels = [strings[int(events.name[row])] for row in outer_rows if _is_label(trace, row)]
    parent_of_row: dict[int, int] = {}  # parent row of each node's row
    innermost: list[int] = []
    for call in calls.tolist():
        chain = [row for row in _ancestors(trace, call) if _belongs_to_graph(trace, row, outer_rows)]
        parent_of_row.update(zip(chain, [*chain[1:], -1], strict=False))
        innermost.append(chain[0] if chain else -1)
    rows = sorted(parent_of_row, key=lambda row: (int(events.ts[row]), -int(events.end[row]), row))
    node_index = {row: i for i, row in enumerate(rows)} | {-1: -1}
    args = _arguments(trace, np.array(rows, np.int32), texts)
    nodes = [
        CaptureNode(
            strings[int(events.name[row])], int(events.category[row]), node_index[parent_of_row[row]], *arguments
        )
        for row, arguments in zip(rows, args, strict=True)
    ]
    batch_match = _BATCH.search(labels[0] if labels else file)
    batch = min(int(batch_match[1][:9]), 10**9) if batch_match else -1
    label = labels[0] if labels else re.sub(r"\.json(\.gz)?$", "", file)
    return CapturedGraph(file, label, batch, tuple(names), tuple(node_index[row] for row in innermost), tuple(nodes))


def _ancestors(trace: Trace, row: int, include_row: bool = False) -> Iterator[int]:
    """Yield the rows of the events around one, innermost first."""
    if include_row:
        yield row
    parent = trace.events.parent
    while (row := int(parent[row])) >= 0:
        yield row


def _is_label(trace: Trace, row: int) -> bool:
    return trace.events.category[row] == Category.ANNOTATION and bool(
        _LABEL.match(trace.strings[int(trace.events.name[row])])
    )


def _belongs_to_graph(trace: Trace, row: int, outer_rows: set[int]) -> bool:
    """Return whether an event around a call belongs to the graph.

    Ranges around the whole capture belong to the start-up.
    """
    category = int(trace.events.category[row])
    return category in NODE_CATEGORIES and not (
        category == Category.ANNOTATION and (row in outer_rows or _is_label(trace, row))
    )


def _arguments(trace: Trace, rows: Ids, texts: dict[str, int]) -> Iterator[tuple[dict[str, float], dict[str, int]]]:
    """Yield the numeric and text arguments of operators, including their call stacks."""
    numbers: list[dict[str, float]] = [{} for _ in rows]
    words: list[dict[str, int]] = [{} for _ in rows]
    for name, column in trace.args.items():
        if name in SKIPPED_ARGUMENTS:
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
        if int(trace.events.category[row]) in OPERATOR_CATEGORIES and (stack := _call_stack(trace, row)):
            words[i]["call_stack"] = texts.setdefault(stack, len(texts))
    yield from zip(numbers, words, strict=True)


def _call_stack(trace: Trace, row: int) -> str:
    """Return the Python frames around an operator within the capture, innermost first, else the stack in the file."""
    frames: list[str] = []
    for ancestor in _ancestors(trace, row):
        if _is_label(trace, ancestor):
            break
        if int(trace.events.category[ancestor]) in FRAME_CATEGORIES:
            frames.append(trace.strings[int(trace.events.name[ancestor])])
    if frames or "call_stack" not in trace.args:
        return "; ".join(frames)
    rows: Rows = np.array([row], np.int32)
    return trace.strings[int(trace.arg("call_stack", rows, 0)[0])]
