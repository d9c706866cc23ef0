"""Workers and nodes of a fleet killed at random while jobs run: python -m tests.remote.fleet_chaos --kills 50 --seed 1.

Every job ends with all its points, and says of every further attempt that it was one: no task was placed more
often than the server counts attempts.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.remote.chaos import by_hand, checked
from tests.remote.fleet_sites import SIZES, FleetSite, cluster, fleet_site, kill_one

PLACED = re.compile(r"agent: task (\S+): .* of \S+$", re.MULTILINE)


def run(folder: Path, kills: int, seed: int, patience_s: float = 300.0) -> Counter[str]:
    """Kill components a number of times, wait for all jobs and check them; return what was killed and the outcomes."""
    chance = random.Random(seed)
    with cluster({}, {}) as ray, fleet_site(folder) as site:
        site.start_agent("--fleet", "ray", RAY_ADDRESS=ray.address)
        site.ready(2)
        told = Counter[str]()
        while told.total() < kills:
            while len(unfinished(site)) < 4:
                site.submit(chance.choice((0.05, 1.0)))
            time.sleep(chance.uniform(0.5, 4.0))
            told.update(_kill(ray, chance))
        site.until(lambda: not unfinished(site), patience_s)
        return told + check(site)


def _kill(ray: Any, chance: random.Random) -> list[str]:
    """What was killed: a worker if one runs, or now and then a node, which is replaced by another one."""
    if chance.random() < 0.8:
        return ["worker"] if kill_one(chance) else []
    ray.remove_node(chance.choice(sorted(ray.worker_nodes, key=lambda node: node.node_id)), allow_graceful=False)
    ray.add_node(num_cpus=1, object_store_memory=80 << 20)
    return ["node"]


def unfinished(site: FleetSite) -> list[str]:
    states = {job["id"]: job["state"] for job in site.http("GET", "/api/v1/jobs")["jobs"]}
    return [job for job in site.jobs if states[job] in ("waiting", "running")]


def check(site: FleetSite) -> Counter[str]:
    """Raises: AssertionError: a job lacks points, or was run more often than it says."""
    placed, counter = Counter(PLACED.findall(site.said)), Counter(jobs=len(site.jobs))
    for name in site.jobs:
        (task,) = site.tasks(name)
        again = checked(site.server.folder, task, SIZES)
        assert bool(again) == (task["attempt"] > 1), task
        assert not again or f"(attempt {task['attempt']})" in again[0], task
        assert 1 <= placed[task["id"]] <= task["attempt"], (placed[task["id"]], task)
        counter["began again"] += bool(again)
    return counter


if __name__ == "__main__":
    by_hand(__doc__, 20, run)
