"""Convert memory planned before the run, chunks with address and lifetime, to memory events."""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.reader.trace import Ids, Ints, Rows
from visualprof.reader.trace.builder import TraceBuilder


class Plan(msgspec.Struct, frozen=True):
    """Planned chunks; all columns are (n,).

    Attributes:
        begin: Start in ns.
        end: End in ns, -1 if the chunk stays.
        addr: Address in bytes.
        size: Size in bytes.
        device: Device number, -1 for the host.
        first_use: File row of the first event that needs the chunk, -1 for none.
        last_use: File row of the last such event, -1 for none.
        category: String id.
    """

    begin: Ints
    end: Ints
    addr: Ints
    size: Ints
    device: Rows
    first_use: Rows
    last_use: Rows
    category: Ids


def add_plan(builder: TraceBuilder, plan: Plan) -> None:
    """Add the memory events of a plan; chunks without a size are skipped."""
    begin, end, addr, size = plan.begin, _chunk_ends(plan), plan.addr, plan.size
    live = np.flatnonzero(size > 0)
    released_chunks = np.flatnonzero((size > 0) & (end >= 0))
    chunks = np.concatenate((released_chunks, live))  # at the same time, releases come before allocations
    is_release = np.arange(len(chunks)) < len(released_chunks)
    builder.allocs(
        ts=np.where(is_release, np.maximum(end[chunks], begin[chunks] + 1), begin[chunks]),
        addr=addr[chunks],
        bytes=np.where(is_release, -size[chunks], size[chunks]),
        device=plan.device[chunks],
        event=np.where(is_release, plan.last_use[chunks], plan.first_use[chunks]),
        category=plan.category[chunks],
        complete=True,
    )


def _chunk_ends(plan: Plan) -> Ints:
    """Return where each chunk ends, at the latest when another chunk takes its place (an in-place operator).

    This loops over the chunks and those alive with them: 20 us each for a graph of 20,000 operators.
    """
    end: Ints = np.array(plan.end)
    alive = np.zeros(0, np.int64)
    for i in np.argsort(plan.begin, kind="stable").tolist():
        alive = alive[(end[alive] > plan.begin[i]) | (end[alive] < 0)]
        replaced = (
            (plan.addr[alive] < plan.addr[i] + plan.size[i])
            & (plan.addr[alive] + plan.size[alive] > plan.addr[i])
            & (plan.begin[alive] < plan.begin[i])
            & (plan.device[alive] == plan.device[i])
        )
        end[alive[replaced]] = plan.begin[i]
        alive = np.append(alive[~replaced], i)
    return end
