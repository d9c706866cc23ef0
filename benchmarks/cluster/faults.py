"""Faults that are injected into a simulated cluster: `KIND:WHERE:AMOUNT[@SHARE]`, the share of steps that have it.

straggler:5:1.2   rank 5's kernels take 1.2 times as long         node:2:1.2    those of all ranks of host 2
host:5:4          rank 5's host takes 4 times as long to launch   loader:5:20   rank 5 loads data for 20 ms more
work:5:1.2        rank 5's copy of the model has 1.2 times as much to do (longer sequences)
stage:1:1.2       pipeline stage 1 has (uneven layers: bubbles)
link:3-4:0.25     a quarter of the bandwidth between hosts 3 and 4        nic:3:0.25    to and from host 3
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.cluster.topology import Topology
from visualprof.reader.trace import Floats, Ints

KINDS = ("straggler", "node", "host", "loader", "work", "stage", "link", "nic")
LINKS = ("link", "nic")


class Fault(NamedTuple):
    """Something that slows the job down. steps: those that have it."""

    kind: str
    where: tuple[int, ...]
    amount: float
    steps: tuple[int, ...]
    text: str

    def ranks(self, topology: Topology) -> tuple[int, ...]:
        """Ranks that are slow by it; none by a link."""
        grid = np.arange(topology.ranks).reshape(topology.shape)
        place = self.where[0]
        chosen = {
            "node": lambda: grid[grid // topology.per_host == place],
            "work": lambda: grid[:, place // topology.tensor % topology.data],
            "stage": lambda: grid[place],
        }
        if self.kind in LINKS:
            return ()
        return tuple(sorted(chosen[self.kind]().ravel().tolist())) if self.kind in chosen else (place,)


def parse(text: str, steps: int, seed: int) -> Fault:
    """A fault as the command line has it.

    Raises: ValueError: it is none.
    """
    match = re.fullmatch(r"(\w+):(\d+)(?:-(\d+))?:(\d+(?:\.\d+)?)(?:@(0?\.\d+|1))?", text)
    if match is None or match[1] not in KINDS or (match[1] == "link") != (match[3] is not None):
        raise ValueError(f"{text!r} is no fault; they look like straggler:5:1.2, link:3-4:0.25, node:1:1.3@0.4")
    kind, first, second, amount, share = match.groups()
    rng = np.random.default_rng((seed, sum(text.encode())))
    count = max(1, round(float(share or 1) * steps))
    chosen = sorted(rng.choice(steps, count, replace=False).tolist())
    hosts = (int(first),) if second is None else (int(first), int(second))
    return Fault(kind, hosts, float(amount), tuple(chosen), text)


@dataclass(frozen=True)
class Effects:
    """What the faults do to each rank of a step, (stages, copies, tensor ranks), and to the hosts' links.

    device, host, work: factors of the time of kernels, of launching, and of kernels with their blocks. loading: us.
    bandwidth: (hosts, hosts) factors.
    """

    device: Floats
    host: Floats
    work: Floats
    loading: Floats
    bandwidth: Floats


def effects(topology: Topology, faults: Sequence[Fault], step: int) -> Effects:
    """Return the effects of the faults in a step."""
    factor = {name: np.ones(topology.ranks) for name in ("device", "host", "work")}
    loading, bandwidth = np.zeros(topology.ranks), np.ones((topology.hosts, topology.hosts))
    units = {"straggler": "device", "node": "device", "host": "host", "work": "work", "stage": "work"}
    for fault in faults:
        ranks: Ints = np.array(fault.ranks(topology), np.int64)
        if step not in fault.steps:
            continue
        if fault.kind in units:
            factor[units[fault.kind]][ranks] *= fault.amount
        elif fault.kind == "loader":
            loading[ranks] += fault.amount * 1e3
        else:
            a, b = (fault.where * 2)[:2] if fault.kind == "link" else (fault.where[0], slice(None))
            bandwidth[a, b] *= fault.amount
            bandwidth[b, a] *= fault.amount
    shaped = {name: values.reshape(topology.shape) for name, values in factor.items()}
    return Effects(**shaped, loading=loading.reshape(topology.shape), bandwidth=bandwidth)
