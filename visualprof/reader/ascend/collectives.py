"""Collectives of Ascend NPUs: operation, group, size, and the links that carried their data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visualprof.reader.ascend.folder import RecordingFacts
from visualprof.reader.ascend.names import NO_LINKS, collective_parts, element_type, group_hash
from visualprof.reader.trace import Ids, Ints, Rows
from visualprof.reader.trace.builder import TraceBuilder


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
