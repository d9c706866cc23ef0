"""Check that the machine is quiet before times are measured, as other work makes every time longer.

python -m benchmarks.quiet
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from typing import NamedTuple

ROUNDS, LOOPS = 40, 200_000
MAX_STOLEN, MAX_SPREAD, MAX_LOAD = 0.05, 0.1, 0.3  # the load per core


class Quiet(NamedTuple):
    """How undisturbed a loop of arithmetic ran.

    Attributes:
        stolen_ratio: Share of the wall time in which the loop did not run.
        spread_ratio: How much longer the 90th of 100 rounds took than the median, in CPU time.
        load_per_core: Average load of the last minute per core.
    """

    stolen_ratio: float
    spread_ratio: float
    load_per_core: float

    @property
    def ok(self) -> bool:
        """Whether times of this machine are worth reporting."""
        return self.stolen_ratio <= MAX_STOLEN and self.spread_ratio <= MAX_SPREAD and self.load_per_core <= MAX_LOAD

    def line(self) -> str:
        """Describe the machine in one sentence."""
        state = "quiet" if self.ok else "**not quiet; its times are too long**"
        return (
            f"The machine was {state}: a loop of arithmetic waited {self.stolen_ratio:.1%} of its time, its rounds "
            f"differed by {self.spread_ratio:.1%}, and the load was {self.load_per_core:.2f} per core"
        )


def check_quiet(rounds: int = ROUNDS, loops: int = LOOPS) -> Quiet:
    """Measure how undisturbed a loop of arithmetic runs; takes half a second."""
    walls, cpus = list[float](), list[float]()
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        sum(range(loops))
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    spread = statistics.quantiles(cpus, n=10)[8] / statistics.median(cpus) - 1
    return Quiet(max(0.0, 1 - sum(cpus) / sum(walls)), spread, os.getloadavg()[0] / (os.cpu_count() or 1))


if __name__ == "__main__":
    checked = check_quiet()
    print(checked.line())
    sys.exit(0 if checked.ok else 1)
