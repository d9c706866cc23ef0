"""A simulated job with the truth about it, and both as files."""

from __future__ import annotations

import gzip
import json
import multiprocessing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cluster.faults import LINKS, Fault, parse
from benchmarks.cluster.program import Program
from benchmarks.cluster.simulation import Job, Noise, simulate
from benchmarks.cluster.text import FIRST_STEP, clocks, file_name, profile, template
from benchmarks.cluster.topology import DESCRIPTIONS, Topology

Size = tuple[int, int, int]  # steps, events of a rank, microbatches (0: by the stages)


def make(
    topology: Topology, size: Size, texts: Sequence[str], seed: int, noise: Noise | None = None
) -> tuple[Job, dict[str, Any]]:
    """A job with faults, and the truth about it.

    The cost of a fault is by how much a step is longer than in the same job without it, as a share; what it costs
    alone, by how much one with nothing else is longer than a healthy one.
    """
    steps, events, microbatches = size
    program = Program.of_size(topology, steps, events, microbatches)
    injected = [parse(text, steps, seed) for text in texts]

    def run(chosen: Sequence[Fault]) -> Job:
        return simulate(topology, program, steps, chosen, seed, noise)

    job = run(injected)
    told = list[dict[str, Any]]()
    for fault in injected:
        cost = job.step_us / run([each for each in injected if each is not fault]).step_us - 1
        alone = run([fault]).step_us / run([]).step_us - 1 if len(injected) > 1 else cost
        told.append(_told(fault, topology) | {"cost": round(cost, 5), "alone": round(alone, 5)})
    return job, {
        "seed": seed,
        "ranks": topology.ranks,
        "tensor": topology.tensor,
        "data": topology.data,
        "pipeline": topology.pipeline,
        "expert": topology.expert,
        "per_host": topology.per_host,
        "hosts_per_rack": topology.hosts_per_rack,
        "layers": program.layers,
        "microbatches": program.microbatches,
        "events": program.events() * steps,
        "step_us": round(job.step_us, 3),
        "clock_offset_us": np.round(job.offset, 3).tolist(),
        "groups": [{"name": g.name, "description": DESCRIPTIONS[g.kind], "ranks": g.ranks} for g in topology.groups],
        "faults": told,
    }


def _told(fault: Fault, topology: Topology) -> dict[str, Any]:
    hosts = fault.where if fault.kind in LINKS else sorted({topology.host(rank) for rank in fault.ranks(topology)})
    return {
        "fault": fault.text,
        "kind": fault.kind,
        "amount": fault.amount,
        "ranks": fault.ranks(topology),
        "hosts": hosts,
        "stage": fault.where[0] if fault.kind == "stage" else None,
        "steps": [str(FIRST_STEP + step) for step in fault.steps],
    }


def write(job: Job, truth: dict[str, Any], out: Path, workers: int = 1, *, gz: bool = False) -> int:
    """Write the profile of every rank and the truth into a folder; return the size of the profiles in bytes."""
    out.mkdir(parents=True, exist_ok=True)
    out.with_name(f"{out.name}.truth.json").write_text(json.dumps(truth, indent=1))
    topology = job.topology
    per_stage = topology.data * topology.tensor
    chunk = max(1, min(64, per_stage // workers))
    parts = [
        (stage, range(start, min(start + chunk, (stage + 1) * per_stage)))
        for stage in range(topology.pipeline)
        for start in range(stage * per_stage, (stage + 1) * per_stage, chunk)
    ]
    if workers == 1:
        return sum(_write(job, out, *part, gz=gz) for part in parts)
    _GIVEN[:] = [(job, out, gz)]  # what processes that are forked find
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        return sum(pool.imap_unordered(_write_part, parts))


_GIVEN: list[tuple[Job, Path, bool]] = []


def _write_part(part: tuple[int, range]) -> int:
    job, out, gz = _GIVEN[0]
    return _write(job, out, *part, gz=gz)


def _write(job: Job, out: Path, stage: int, ranks: range, *, gz: bool) -> int:
    templates = [template(job, stage, step) for step in range(len(job.values))]
    total, times = 0, clocks(job, stage)
    for rank in ranks:
        data = "".join(profile(job, rank, templates, times)).encode()
        if gz:
            data = gzip.compress(data, 1, mtime=0)
        total += (out / (file_name(job.topology, rank) + (".gz" if gz else ""))).write_bytes(data)
    return total
