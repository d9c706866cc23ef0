"""Simulate a training job on a cluster and write the profile of every rank.

    python -m benchmarks.cluster OUT --ranks 64 --tensor 8 --pipeline 2 --steps 8 --events 16000 --seed 1 \\
        --fault straggler:5:1.2 --fault link:3-4:0.25

OUT is a log directory of one run; what was injected, and what it costs, stands beside it in OUT.truth.json.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from benchmarks.cluster import faults
from benchmarks.cluster.job import make, write
from benchmarks.cluster.simulation import Noise
from benchmarks.cluster.topology import Topology


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    for name, default, description in (
        ("ranks", 64, "processes, eight on a host"),
        ("tensor", 1, "ranks that share a layer"),
        ("pipeline", 1, "stages"),
        ("expert", 1, "copies that share their experts"),
        ("microbatches", 0, "of a step; twice the stages unless given"),
        ("steps", 8, "that are profiled"),
        ("events", 16_000, "of each rank, about"),
        ("seed", 1, "of all noise"),
        ("workers", os.cpu_count() or 1, "processes that write"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{description} (default: {default})")
    parser.add_argument(
        "--fault", action="append", default=[], metavar="KIND:WHERE:AMOUNT[@SHARE]", help=faults.__doc__
    )
    parser.add_argument("--jitter", type=float, default=Noise.kernels, help="of kernels, as a share")
    parser.add_argument("--pauses", type=float, default=0.0, help="chance of a pause of a rank's host in a step")
    parser.add_argument("--gz", action="store_true")
    options = parser.parse_args()
    topology = Topology(options.ranks, options.tensor, options.pipeline, options.expert)
    noise = Noise(kernels=options.jitter, pauses=options.pauses)
    began = time.perf_counter()
    size = options.steps, options.events, options.microbatches
    job, truth = make(topology, size, options.fault, options.seed, noise)
    simulated = time.perf_counter() - began
    nbytes = write(job, truth, options.out, options.workers, gz=options.gz)
    took = time.perf_counter() - began - simulated
    events = truth["events"] * topology.ranks
    print(f"{topology.ranks} ranks, about {events:,} events, {nbytes / 1e9:.2f} GB in {options.out}")
    print(f"simulated in {simulated:.1f} s, written in {took:.1f} s; a step takes {job.step_us / 1e3:.1f} ms")


if __name__ == "__main__":
    main()
