"""Collectives of Ascend NPUs: operation, group, size, and the links that carried their data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visualprof.reader.ascend.folder import RecordingFacts
from visualprof.reader.ascend.names import NO_LINKS, collective_parts, element_type, group_hash
from visualprof.reader.trace import Ids, Ints, Mask, Rows
from visualprof.reader.trace.builder import TraceBuilder

_TRANSFER, _WAIT, _REMOTE, _OTHER_TASK = range(4)  # kinds of tasks of a collective


def add_collectives(
    builder: TraceBuilder,
    rows: Rows,
    *,
    names: Sequence[str],
    elements: Ints,
    types: Sequence[str],
    groups: Sequence[str],
    facts: RecordingFacts,
) -> None:
    """Add the arguments of collectives.

    Args:
        builder: Gets the arguments.
        rows: (n,) rows of the collectives.
        names: (n,) names, `hcom_allReduce__586_0_1`.
        elements: (n,) number of elements, negative if unknown.
        types: (n,) element types, "" if unknown.
        groups: (n,) ids of the groups, "" if only the name of the collective identifies the group.
        facts: Facts of the recording.
    """
    parts = [collective_parts(name) for name in names]
    texts = {
        "collective": [operation for operation, _, _ in parts],
        "dtype": [element_type(name) for name in types],
        "group": [_group(name, digits, facts) for name, (_, digits, _) in zip(groups, parts, strict=True)],
    }
    for name, values in texts.items():
        ids = builder.strings(values)
        builder.arg(name, rows[ids > 0], ids[ids > 0], text=True)
    sequence = np.array([number for _, _, number in parts], np.int64)
    builder.arg("group_seq", rows[sequence >= 0], sequence[sequence >= 0])
    builder.arg("elements_in", rows[elements >= 0], elements[elements >= 0])


def _group(name: str, digits: str, facts: RecordingFacts) -> str:
    """Return a group's id; without an id, the only group with a hash that ends in the digits, or else the digits."""
    if name:
        return name
    matching = [group for number, group in facts.group_of_hash.items() if digits and number.endswith(digits)]
    return matching[0] if len(matching) == 1 else digits


def known_group(name: str, facts: RecordingFacts) -> str:
    """Return the metadata's name for the id or hash of a group; `name` itself if the metadata lacks the group."""
    return facts.group_of_hash.get(name) or facts.group_of_hash.get(group_hash(name)) or name


def add_links(
    builder: TraceBuilder,
    rows: Rows,
    *,
    owner: Ids,
    links: Sequence[str],
    link: Rows,
    size: Ints,
    dur_ns: Ints,
) -> None:
    """Add the link, its bytes and its time to collectives, summed over the tasks that transferred between devices.

    Parallel links add up, so the time may exceed the duration of the collective. With several types of links, only
    the type with the most bytes is added.

    Args:
        builder: Gets the arguments.
        rows: (n,) rows of the collectives.
        owner: (m,) collective of each task, as an index of `rows`, -1 for none.
        links: Distinct types of links.
        link: (m,) index in `links`.
        size: (m,) bytes of each task.
        dur_ns: (m,) duration of each task.
    """
    if not len(rows) or not len(links):
        return
    carries = np.array([name not in NO_LINKS for name in links])[link] & (size > 0) & (owner >= 0)
    key = owner[carries].astype(np.int64) * len(links) + link[carries]
    totals = [
        np.bincount(key, values[carries].astype(np.float64), len(rows) * len(links)).reshape(len(rows), len(links))
        for values in (size, dur_ns)
    ]
    moved, spent = totals
    best = moved.argmax(axis=1)
    used = np.flatnonzero(moved.max(axis=1, initial=0) > 0)
    ids = builder.strings(links)
    builder.arg("link_type", rows[used], ids[best[used]], text=True)
    builder.arg("link_bytes", rows[used], moved[used, best[used]].astype(np.int64))
    builder.arg("link_ns", rows[used], np.rint(spent[used, best[used]]).astype(np.int64))


def add_phases(
    builder: TraceBuilder,
    rows: Rows,
    *,
    owner: Ids,
    plane: Ints,
    names: Sequence[str],
    name: Rows,
    is_local: Mask,
    dur_ns: Ints,
) -> None:
    """Add the time in which the main plane of a collective transferred data, and in which it waited for other ranks.

    The main plane is the first that transfers data between devices. If it uses RDMA, the collective gets no transfer
    time, because such a transfer ends with a later task.

    Args:
        builder: Gets the arguments.
        rows: (n,) rows of the collectives.
        owner: (m,) collective of each task, as an index of `rows`, -1 for none.
        plane: (m,) plane of each task, negative if unknown.
        names: Distinct names of tasks.
        name: (m,) index in `names`.
        is_local: (m,) whether the task transfers nothing between devices.
        dur_ns: (m,) duration of each task.
    """
    kinds = np.array([_task_kind(text) for text in names] or [_OTHER_TASK], np.int64)[name]
    kinds = np.where((kinds == _TRANSFER) & is_local, _OTHER_TASK, kinds)
    between = np.flatnonzero((owner >= 0) & (plane >= 0) & (kinds != _OTHER_TASK))
    if not len(between):
        return
    main_plane = np.full(len(rows), np.iinfo(np.int64).max)
    np.minimum.at(main_plane, owner[between], plane[between])
    on_main = between[plane[between] == main_plane[owner[between]]]
    owner, kinds, dur_ns = owner[on_main], kinds[on_main], dur_ns[on_main]
    waited, moved = (
        np.bincount(owner[kinds == kind], dur_ns[kinds == kind], len(rows)).astype(np.int64)
        for kind in (_WAIT, _TRANSFER)
    )
    has_tasks = np.bincount(owner, minlength=len(rows)) > 0
    has_remote = np.bincount(owner[kinds == _REMOTE], minlength=len(rows)) > 0
    builder.arg("notify_wait_ns", rows[has_tasks], waited[has_tasks])
    is_known = has_tasks & ~has_remote
    builder.arg("transit_ns", rows[is_known], moved[is_known])


def _task_kind(name: str) -> int:
    """Return the kind of a task of a collective by its name."""
    if name in ("Memcpy", "Reduce_Inline", "Inline_Reduce"):
        return _TRANSFER
    if name in ("Notify_Wait", "Notify Wait"):
        return _WAIT
    return _REMOTE if name.startswith("RDMA") else _OTHER_TASK
