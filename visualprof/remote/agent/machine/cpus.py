"""CPUs for a child: those that a job names, or one thread of each core of a NUMA node."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from visualprof.remote.protocol import TaskFailure, cpu_numbers

SYSFS = Path("/sys/devices/system")
_NODE = re.compile(r"node(\d+)")


def pinned_cpus(pin: str, threads: int, sysfs: Path = SYSFS, allowed: Collection[int] | None = None) -> list[int]:
    """The CPUs of a job's `pin`, in order; [] for "", which is all of them.

    auto: one thread of each core, of the NUMA node with most of them, the last ones first (the first serve interrupts);
    as many as the spec has threads, or all.

    Args: sys: where the system tells its cores. allowed: that this process may use, else asked of the system.
    Raises: TaskFailure: this machine does not have them.
    """
    if not pin:
        return []
    here = set(os.sched_getaffinity(0) if allowed is None else allowed)
    if pin == "auto":
        cores = max(_nodes(sysfs, here), key=len)
        return sorted(cores[-threads:])
    wanted = cpu_numbers(pin)
    if lacking := sorted(set(wanted) - here):
        error = f"pin: this machine's agent has no CPU {', '.join(map(str, lacking))}"
        raise TaskFailure("input_error", error, f"it may use {', '.join(map(str, sorted(here)))}")
    return wanted


def _nodes(sys: Path, here: Collection[int]) -> Iterator[list[int]]:
    """The first CPU of each core, for each NUMA node; all of them as one node where the system tells none."""
    cores = {_core(sys, cpu, here): cpu for cpu in sorted(here, reverse=True)}
    firsts = sorted(cores.values())
    nodes: dict[str, list[int]] = {}
    for cpu in firsts:
        node = next((path.name for path in sys.glob(f"cpu/cpu{cpu}/node*") if _NODE.fullmatch(path.name)), "")
        nodes.setdefault(node, []).append(cpu)
    yield from nodes.values()


def _core(sys: Path, cpu: int, here: Collection[int]) -> tuple[int, ...]:
    """The threads of a CPU's core that may be used, which name it; itself alone where the system does not tell."""
    try:
        siblings = cpu_numbers((sys / f"cpu/cpu{cpu}/topology/thread_siblings_list").read_text("ascii").strip())
    except (OSError, ValueError):
        return (cpu,)
    return tuple(sibling for sibling in siblings if sibling in here) or (cpu,)
