"""Find communication kernels whose names do not identify them, by their arguments or by the code that launched them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from visualprof.reader.communication import is_computation_kernel, is_surrounding_communication, returns_before_transfer
from visualprof.reader.trace import Bytes, Category, Ids, LinkKind, Links, Mask, Rows, Track, TrackKind, Values
from visualprof.reader.trace.names import check_names
from visualprof.reader.trace.nesting import nearest_ancestor

_AROUND = (Category.OP, Category.COMM, Category.ANNOTATION)


def communication_kernels(
    *,
    texts: Sequence[str],
    name: Ids,
    category: Bytes,
    parent: Ids,
    links: Links,
    is_on_stream: Mask,
    with_collective: Rows,
) -> Rows:
    """Return the rows of communication kernels that are found by their arguments or their launch.

    A kernel communicates in either of these cases:

    - It has the arguments of a collective.
    - The innermost operator or range around its launch has the name of a collective, and the kernel's own name is not
      that of a computation.

    Args:
        texts: The string table.
        name: (n,) string ids of the events.
        category: (n,) categories.
        parent: (n,) enclosing events.
        links: Links between events.
        is_on_stream: (n,) whether the event ran on a device.
        with_collective: Rows of events with the arguments of a collective.
    """
    is_candidate = is_on_stream & (category == Category.KERNEL)
    by_argument = with_collective[is_candidate[with_collective]]
    is_launch = (links.kind == LinkKind.LAUNCH) & is_candidate[links.dst]
    call, kernel = links.src[is_launch], links.dst[is_launch]
    is_silent = ~check_names(texts, name[kernel], is_computation_kernel)
    call, kernel = call[is_silent], kernel[is_silent]
    if not len(kernel):
        return by_argument
    is_around = np.isin(category, _AROUND) & ~is_on_stream
    around = nearest_ancestor(parent, is_around, call)
    call, kernel, around = call[around >= 0], kernel[around >= 0], around[around >= 0]
    communicates = (category[around] == Category.COMM) | check_names(texts, name[around], is_surrounding_communication)
    return np.concatenate((by_argument, kernel[communicates]))


def count_untimed_calls(texts: Sequence[str], columns: Mapping[str, Values], tracks: Sequence[Track]) -> int:
    """Return the number of calls that launch communication, if the file has none of its kernels; otherwise 0."""
    is_communication = columns["category"] == Category.COMM
    if not is_communication.any():
        return 0
    on_thread = np.array([track.kind is TrackKind.THREAD for track in tracks])[columns["track"]]
    if not on_thread[is_communication].all():
        return 0
    counts = np.bincount(columns["name"][is_communication & (columns["dur"] >= 0)], minlength=len(texts))
    used: list[int] = np.flatnonzero(counts).tolist()
    return sum(int(counts[i]) for i in used if returns_before_transfer(texts[i], False))
