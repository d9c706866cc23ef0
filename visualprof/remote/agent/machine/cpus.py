"""CPUs for a child: those named by a job, or one thread of each core of a NUMA node."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from visualprof.remote.protocol import TaskFailure, cpu_numbers

SYSFS = Path("/sys/devices/system")
_NODE = re.compile(r"node(\d+)")


def pinned_cpus(pin: str, threads: int, sysfs: Path = SYSFS, allowed: Collection[int] | None = None) -> list[int]:
    """Return the CPUs of a job's `pin`, in order; empty for "", which means all CPUs.

    "auto" selects one thread of each core, from the NUMA node with the most cores.
    It takes the last cores, because the first ones serve interrupts: one core per thread, or all.

    Args:
        pin: "", "auto" or CPU numbers.
        threads: Threads of the run configuration; 0 for all.
        sysfs: Folder where the system lists its cores.
        allowed: CPUs that this process may use; by default the process's affinity.

    Raises:
        TaskFailure: This machine does not have the CPUs.
    """
    if not pin:
        return []
    allowed_cpus = set(os.sched_getaffinity(0) if allowed is None else allowed)
    if pin == "auto":
        cores = max(_numa_nodes(sysfs, allowed_cpus), key=len)
        return sorted(cores[-threads:])
    cpus = cpu_numbers(pin)
    if missing := sorted(set(cpus) - allowed_cpus):
        error = f"pin: this agent may not use CPU {', '.join(map(str, missing))}"
        raise TaskFailure("input_error", error, f"available CPUs: {', '.join(map(str, sorted(allowed_cpus)))}")
    return cpus


def _numa_nodes(sysfs: Path, allowed_cpus: Collection[int]) -> Iterator[list[int]]:
    """Yield the first CPU of each core per NUMA node. Without NUMA information all CPUs form one node."""
    cores = {_core_threads(sysfs, cpu, allowed_cpus): cpu for cpu in sorted(allowed_cpus, reverse=True)}
    first_cpus = sorted(cores.values())
    nodes: dict[str, list[int]] = {}
    for cpu in first_cpus:
        node = next((path.name for path in sysfs.glob(f"cpu/cpu{cpu}/node*") if _NODE.fullmatch(path.name)), "")
        nodes.setdefault(node, []).append(cpu)
    yield from nodes.values()


def _core_threads(sysfs: Path, cpu: int, allowed_cpus: Collection[int]) -> tuple[int, ...]:
    """Return the usable threads of a CPU's core, which identify the core; only the CPU if the system lists none."""
    try:
        siblings = cpu_numbers((sysfs / f"cpu/cpu{cpu}/topology/thread_siblings_list").read_text("ascii").strip())
    except (OSError, ValueError):
        return (cpu,)
    return tuple(sibling for sibling in siblings if sibling in allowed_cpus) or (cpu,)
