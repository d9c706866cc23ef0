"""How long a message takes on the links of a cluster, by size, bandwidth and latency."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.cluster.program import REDUCE
from benchmarks.cluster.topology import Topology
from visualprof.reader.trace import Floats, Ints

INSIDE, BETWEEN = 300e3, 40e3  # bytes per us: within a host, and of each device's way to other hosts
HOP_US = {True: 4.0, False: 12.0}  # within a host, between hosts
WIDTH = 2  # bytes of an element


def collective_us(topology: Topology, kind: str, name: str, elements: int, factors: Floats) -> Floats:
    """us of a collective of each group of a kind: a ring is as fast as its slowest link.

    Over each link go (n - 1) / n of the whole message, twice of an all-reduce; as nccl-tests counts.

    Args: factors: of the bandwidth between hosts (hosts, hosts).
    """
    members = topology.members(kind)
    around = np.roll(members, -1, axis=1)
    speed = bandwidth(topology, members, around, factors).min(axis=1)
    size = members.shape[1]
    inside = (members // topology.per_host == members[:, :1] // topology.per_host).all(axis=1)
    hops = np.where(inside, HOP_US[True], HOP_US[False]) * math.ceil(math.log2(size))
    return hops + (2 if name == REDUCE else 1) * (size - 1) / size * elements * WIDTH / speed


def message_us(topology: Topology, source: Ints, target: Ints, elements: int, factors: Floats) -> Floats:
    """us of a message between ranks."""
    inside = source // topology.per_host == target // topology.per_host
    hop = np.where(inside, HOP_US[True], HOP_US[False])
    return hop + elements * WIDTH / bandwidth(topology, source, target, factors)


def bandwidth(topology: Topology, source: Ints, target: Ints, factors: Floats) -> Floats:
    """Bytes per us between ranks."""
    a, b = source // topology.per_host, target // topology.per_host
    return np.where(a == b, INSIDE, BETWEEN * factors[a, b])
