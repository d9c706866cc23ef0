"""Memory of the tensors in a MegEngine timeline: sizes from arguments, lifetimes from the TensorLink arrows."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from visualprof.messages import msg
from visualprof.reader.chrome.document import NO_INT, Document
from visualprof.reader.chrome.events import used_text_ids
from visualprof.reader.trace import Ints
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.nesting import innermost_on_tracks, nest

# Bits per element; the names are those of MegEngine's DTypeEnum.
ELEMENT_BITS = {
    "Float32": 32,
    "Float16": 16,
    "BFloat16": 16,
    "Float64": 64,
    "Complex64": 64,
    "Int64": 64,
    "Uint64": 64,
    "Int32": 32,
    "Uint32": 32,
    "Int16": 16,
    "Uint16": 16,
    "Int8": 8,
    "Uint8": 8,
    "Byte": 8,
    "Bool": 8,
    "IntB1": 1,
    "IntB2": 2,
    "IntB4": 4,
    "QuantizedS32": 32,
    "QuantizedS16": 16,
    "QuantizedS8": 8,
    "Quantized8Asymm": 8,
    "QuantizedS4": 4,
    "Quantized4Asymm": 4,
    "QuantizedS1": 1,
}


def memory_device(comp_node: str, numbers: Mapping[str, int]) -> int:
    """Return the device number of `CompNode("gpu1:0" from "gpux:1")`, -1 (host memory) for a CPU."""
    names = re.findall(r'"([^"]*)"', comp_node) or [comp_node]
    if names[0].startswith(("cpu", "multithread")) or not names[0]:
        return -1
    digits = re.search(r"\d+", names[0])
    return next((numbers[n] for n in reversed(names) if n in numbers), int(digits.group()) if digits else 0)


_SHARED_STORAGE = msg(
    "reader.memory_added_up_sizes",
    "memory is the sum of tensor sizes; tensors that share storage (views) are counted separately",
)


def add_tensor_allocations(
    doc: Document, builder: TraceBuilder, begin: Ints, end: Ints, numbers: Mapping[str, int]
) -> None:
    """Add an allocation where a tensor's arrow starts and a release where it ends, with the tensor's id as address.

    Starts before time 0 count as 0. The profiler reports all live tensors when it starts, so the totals are complete.
    Tensors that share storage (views) are counted separately, because the file has no addresses.

    Args:
        doc: The file's events, with the arguments `tensor`, `elements`, `dtype` and `device`.
        builder: Gets the memory events.
        begin: Rows of the begin marks of the shown events.
        end: Rows of their end marks.
        numbers: Device number by the name of its lane.
    """
    kinds = doc.map_kinds(lambda k: ("s", "f").index(k.ph) if k.cat == "TensorLink" and k.ph in ("s", "f") else -1)
    tensor_flows = np.flatnonzero(kinds[doc.flow_rows] >= 0)
    if not len(tensor_flows):
        return
    rows, flow = doc.flow_rows[tensor_flows], doc.flow_ids[tensor_flows]
    release = kinds[rows] == 1
    tensors, size, device = _sizes(doc, numbers)
    index = np.minimum(np.searchsorted(tensors, flow), len(tensors) - 1)
    has_size = tensors[index] == flow
    bytes_of = np.where(has_size, size[index], -1)
    ids, tensor_index = np.unique(flow, return_inverse=True)
    allocated, released_early, unsized = np.zeros((3, len(ids)), bool)
    unsized[tensor_index[~has_size]] = True
    if unsized.any():
        builder.warn(
            msg(
                "reader.tensors_no_size_file",
                f"{np.count_nonzero(unsized):,} tensors have no size in the file and are not counted",
            )
        )
    ts = doc.ts[rows]
    allocated[tensor_index[~release]] = released_early[tensor_index[release & (ts < 0)]] = True
    skipped, unallocated = released_early[tensor_index], release & ~allocated[tensor_index]
    if (unallocated & ~skipped).any():
        builder.warn(
            msg(
                "reader.tensors_released_without_having",
                f"{int((unallocated & ~skipped).sum()):,} tensors are released without having been produced",
            )
        )
    counted = has_size & (bytes_of > 0) & ~skipped
    if not counted.any():
        return
    builder.warn(_SHARED_STORAGE)
    rows, release = rows[counted], release[counted]
    builder.allocs(
        ts=np.maximum(ts[counted], 0),
        addr=flow[counted],
        bytes=np.where(release, -bytes_of[counted], bytes_of[counted]),
        device=device[index[counted]],
        event=enclosing_marks(doc, begin, end, rows),
        complete=not unallocated.any(),
    )


def _sizes(doc: Document, numbers: Mapping[str, int]) -> tuple[Ints, Ints, Ints]:
    """Return the tensors of known size: their ids, ascending, their largest reported sizes in bytes, and their devices.

    The id `NO_INT` with size 0 is always included.
    """
    rows, elements = doc.arg("elements")
    dtype, node = (doc.arg_at(name, rows, 0) for name in ("dtype", "device"))
    tensor_text = doc.arg_at("tensor", rows, 0)
    bits, nodes, ids = np.zeros((3, len(doc.texts)), np.int64)
    ids[:] = NO_INT
    for i in used_text_ids(doc, tensor_text):
        ids[i] = int(doc.texts[i]) if re.fullmatch(r"\d{1,18}", doc.texts[i]) else NO_INT
    tensor = ids[tensor_text]
    for i in used_text_ids(doc, dtype):
        bits[i] = ELEMENT_BITS.get(re.split(r"[^A-Za-z0-9]", doc.texts[i], maxsplit=1)[0], 0)
    sized = np.flatnonzero((tensor >= 0) & (bits[dtype] > 0) & (elements >= 0) & (elements < 1 << 50))
    for i in used_text_ids(doc, node[sized]):
        nodes[i] = memory_device(doc.texts[i], numbers)
    tensors, tensor_index = np.unique(np.append(NO_INT, tensor[sized]), return_inverse=True)
    size, device = np.zeros((2, len(tensors)), np.int64)
    np.maximum.at(size, tensor_index[1:], (elements[sized] * bits[dtype[sized]] + 7) // 8)
    device[tensor_index[1:]] = nodes[node[sized]]  # the last assignment wins
    return tensors, size, device


def enclosing_marks(doc: Document, begin: Ints, end: Ints, rows: Ints) -> Ints:
    """Return for each row the begin mark of the innermost open event, in file order, -1 for none."""
    order = np.lexsort((begin, doc.thread[begin]))
    first, last = begin[order], end[order]
    edges = np.searchsorted(doc.thread[first], np.arange(len(doc.threads) + 1))
    parent, _ = nest(first, last, edges)
    events = innermost_on_tracks(first, last, parent, edges, doc.thread[rows], rows)
    return np.append(first, -1)[events]
