"""Clusters in which the search for causes is tried: several of each kind, healthy ones among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from benchmarks.cluster.simulation import Noise
from benchmarks.cluster.topology import Topology

STEPS = 8
# Ranks, tensor, pipeline, expert.
TOPOLOGIES = ((64, 8, 2, 1), (32, 1, 1, 1), (64, 4, 4, 1), (32, 4, 2, 2), (64, 1, 4, 1), (48, 8, 1, 1), (64, 2, 2, 4))
SMALL = ((16, 2, 2, 1), (16, 1, 1, 1), (16, 4, 1, 1))
JITTER = Noise(kernels=0.08, hosts=0.3, transfers=0.1, spread=0.006, pauses=0.02, offset_us=1000)


@dataclass(frozen=True)
class Case:
    """A cluster to make. faults: as on the command line."""

    kind: str
    seed: int
    topology: Topology
    faults: tuple[str, ...] = ()
    noise: Noise = field(default_factory=Noise)


def cases(seeds: int, shapes: tuple[tuple[int, int, int, int], ...] = TOPOLOGIES) -> Iterator[Case]:
    """Yield a number of cases of each kind, in turn on each topology; the seed selects the faults."""
    for place, kind in enumerate(_INJECTED):
        for seed in range(1, seeds + 1):
            rng = np.random.default_rng((seed, place))
            fitting = [Topology(*shape) for shape in shapes if kind != "uneven stages" or shape[2] > 1]
            topology = fitting[(seed + place) % len(fitting)]
            injected = tuple(text.format(**_drawn(topology, rng)) for text in _INJECTED[kind])
            yield Case(kind, seed, topology, injected, JITTER if kind == "jitter only" else Noise())


_INJECTED: dict[str, tuple[str, ...]] = {
    "healthy": (),
    "jitter only": (),
    "slow device": ("straggler:{rank}:{slow:.2f}",),
    "slow device, some steps": ("straggler:{rank}:{slower:.2f}@0.4",),
    "slow node": ("node:{host}:{slow:.2f}",),
    "slow host": ("host:{rank}:{much:.1f}",),
    "slow loader": ("loader:{rank}:{ms:.1f}",),
    "more data": ("work:{rank}:{slow:.2f}",),
    "uneven stages": ("stage:{stage}:{slow:.2f}",),
    "slow link": ("link:{host}-{peer}:{part:.2f}",),
    "slow network of a node": ("nic:{host}:{part:.2f}",),
    "two slow devices": ("straggler:{rank}:{slow:.2f}", "straggler:{other}:{slow:.2f}"),
    "slow device and loader": ("straggler:{rank}:{slow:.2f}", "loader:{other}:{ms:.1f}"),
    "slow device and node's network": ("straggler:{rank}:{slow:.2f}", "nic:{host}:{part:.2f}"),
}


def _drawn(topology: Topology, rng: np.random.Generator) -> dict[str, float]:
    """What the texts of faults may name. peer: a host that host has a ring's or a pipeline's link to."""
    rank, other = rng.choice(topology.ranks, 2, replace=False).tolist()
    groups = [group for kind in ("data", "pipeline") for group in topology.members(kind).tolist()]
    links = [sorted({topology.host(a), topology.host(b)}) for group in groups for a, b in pairwise(group)]
    between = [link for link in links if len(link) == 2]
    host, peer = between[int(rng.integers(len(between)))]
    return {
        "rank": rank,
        "other": other,
        "host": host,
        "peer": peer,
        "stage": int(rng.integers(topology.pipeline)),
        "slow": rng.uniform(1.12, 1.3),
        "slower": rng.uniform(1.25, 1.5),
        "much": rng.uniform(4, 6),
        "ms": rng.uniform(5, 15),
        "part": rng.uniform(0.12, 0.25),
    }
