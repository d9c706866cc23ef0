"""Searches against trying everything: which share of the best cost the settings reach that a fifth of the trials find.

Every setting of two models is measured: the least time of a sample over short bursts in several passes, which other
work on the machine disturbs least.
Then the search chooses on these costs, with several seeds: as they are, and with the scatter
of a single trial on top. What it chose is judged by the costs as they are.
"""

from __future__ import annotations

import importlib.util
import math
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import MODELS
from benchmarks.rows import Row
from visualprof.remote.backends import Feeds, backend
from visualprof.remote.child.load import Loader
from visualprof.remote.child.search.sampler import suggest
from visualprof.remote.child.search.space import SHARE, Space, spec_of
from visualprof.remote.protocol import Load, Measure, Spec

SEEDS, SCATTER = 20, 0.05
PASSES, BURSTS, BURST_S = 3, 6, 0.01
REACHED, MOST_TRIALS = 0.95, 0.20
BATCHES = ("1", "2", "4", "8", "16", "32")


@dataclass(frozen=True)
class Case:
    """A model, what runs it, and the settings that are searched. shapes: of the inputs after the batch."""

    name: str
    runtime: str
    path: Path
    inputs: Mapping[str, tuple[tuple[int, ...], str]]
    axes: Mapping[str, tuple[str, ...]]

    def feeds(self, batch: int) -> Feeds:
        """Ones."""
        return {name: np.ones((batch, *shape), dtype) for name, (shape, dtype) in self.inputs.items()}


TOKENS = ((64,), "int64")
CASES = (
    Case(
        "resnet10", "onnxruntime", MODELS / "resnet10_dynbatch.onnx", {"input": ((3, 96, 96), "float32")},
        {
            "batch": BATCHES, "threads": ("1", "2"), "streams": ("1", "2"),
            "optimization": ("all", "extended", "basic", "disable"), "execution": ("sequential", "parallel"),
        },
    ),
    Case(
        "tinybert", "openvino", MODELS / "tinybert_scoped_dyn.onnx", {"input_ids": TOKENS, "attention_mask": TOKENS},
        {
            "batch": BATCHES, "threads": ("1", "2"), "streams": ("1", "2"), "precision": ("f32", "bf16"),
            "hint": ("none", "latency", "throughput"),
        },
    ),
)  # fmt: skip


def cost(case: Case, setting: Mapping[str, str]) -> float:
    """Least ns of a sample over some bursts of a pass."""
    runtime, batch, lanes = backend(case.runtime), int(setting["batch"]), int(setting["streams"])
    feeds = case.feeds(batch)
    spec = spec_of(Spec("bench", case.runtime), setting, list(runtime.options), {})
    session = runtime.load(case.path, spec, feeds)
    prepared = session.prepare(feeds)
    how = Measure(min_s=BURST_S, max_s=1.0, min_n=3 * lanes, load=Load(concurrency=[lanes]))
    bursts = (Loader(session, feeds, how, batch).run(prepared).timed for _ in range(BURSTS))
    least = min(timed.duration_ns / (len(timed.samples) * batch) for timed in bursts)
    session.close()
    return least


def found(space: Space, costs: list[float], trials: int, seed: int, scatter: float) -> float:
    """Cost, without scatter, of what a search of so many trials finds."""
    rng = np.random.default_rng(seed)
    sizes, ordinal = [len(values) for values in space.axes.values()], space.ordinal()
    tried: list[dict[str, object]] = []
    seen: dict[int, float] = {}
    while len(tried) < trials:
        at = suggest(sizes, ordinal, 1000 * seed, tried)
        seen[at] = costs[at] * math.exp(scatter * rng.standard_normal())
        tried.append({"at": at, "cost": seen[at], "excess": [0.0]})
    return costs[min(seen, key=lambda at: seen[at])]


def search() -> Iterator[Row]:
    """Lines of the report."""
    for case in CASES:
        what = f"search: {case.name} with {case.runtime}"
        if importlib.util.find_spec("optuna") is None or not case.path.exists():
            yield Row(what, f"not measured: needs {case.path.name if not case.path.exists() else 'optuna'}")
            continue
        space, begun = Space(case.axes), time.perf_counter()
        passes = [[cost(case, space.setting(at)) for at in range(space.size)] for _ in range(PASSES)]
        costs = [min(each) for each in zip(*passes, strict=True)]
        took, best, trials = time.perf_counter() - begun, min(costs), math.ceil(space.size / SHARE)
        spread = (
            f"{max(costs) / best:.0f} x between best and worst, {sum(c <= best / REACHED for c in costs)} within 95 %"
        )
        yield Row(f"{what}: {space.size} settings, all of them", f"{took:.0f} s; {spread}")
        for scatter in (0.0, SCATTER):
            reached = sorted(best / found(space, costs, trials, seed, scatter) for seed in range(SEEDS))
            enough = sum(one >= REACHED for one in reached)
            figure = f"median {statistics.median(reached):.1%} of the best, least {reached[0]:.1%}; {enough} of {SEEDS}"
            name = f"{what}: {trials} trials ({trials / space.size:.0%})" + f", each ±{scatter:.0%}" * bool(scatter)
            bar = f"at most {MOST_TRIALS:.0%} of the trials, median at least {REACHED:.0%}"
            yield Row(name, f"{figure} seeds reach 95 %", bar, statistics.median(reached) >= REACHED)


if __name__ == "__main__":
    for line in search():
        print(line.line(), flush=True)
