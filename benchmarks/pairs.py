"""Forecasts against what was then measured: scripts recorded before and after a change, in turns.

    python -m benchmarks.pairs OUT [--only NAME]

Needs torch; runs on the processor, one thread a process, ranks on a core each. Each pair is a training step and the
same step with one thing changed. The forecast is that of a recording before with the pair's change; where the change is
by a factor that a forecast cannot know (a larger batch, a fused optimizer, bfloat16), it is measured of that piece of
work alone, of as much as the model has, as caches matter. Denormal numbers are flushed: gradients of a model that has
learned all there is would slow one side down. What one has without a replay is the step less the time of what is
changed. A process records both sides in turns of less than a
second, and each forecast is held against the recording after it, so that what else the machine does disturbs both
alike; the table has medians, and of the errors the middle half.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, repeat
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from visualprof.reader import read_trace
from visualprof.reader.trace import Trace
from visualprof.views import run_view, view
from visualprof.views.measure.columns.intervals import covered_ns, union
from visualprof.views.measure.replay.change import affected_events, parse_changes

STEPS, SKIPPED, WINDOWS = 8, 3, 15  # of a recording, and recordings of each side
PORT = 29_650


@dataclass(frozen=True)
class Pair:
    """change: with `{factor}` where that is measured alone. ranks: processes that train together."""

    title: str
    change: str
    ranks: int = 1
    factor: Callable[[], float] | None = None


def convolutional(extra: bool) -> Any:
    """A small network; `extra` adds two layers."""
    from torch import nn

    blocks: list[nn.Module] = []
    for width in (3, 32, 32):
        blocks += [nn.Conv2d(width, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
    normed = [nn.GroupNorm(4, 32) for _ in range(2)] if extra else []
    return nn.Sequential(*blocks, *normed, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10))


class Pictures:
    """Random pictures, each with work of its own to decode."""

    def __init__(self, decode: int) -> None:
        self.decode = decode

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, _: int) -> tuple[Any, int]:
        import torch

        picture = torch.rand(3, 32, 32)
        for _ in range(self.decode):
            picture = picture.sqrt().square()
        return picture, 1


def extra(label: str, times: int) -> None:
    """Do some milliseconds of additional work."""
    import torch

    with torch.profiler.record_function(label):
        work = torch.rand(400, 400)
        for _ in range(times):
            work = (work @ work).tanh()


def script(name: str, after: bool, rank: int) -> Callable[[], None]:
    """A training step of one side of a pair."""
    import torch
    from torch import nn

    batch = 16 if name == "batch" and after else 8
    flat = name in ("optimizer", "item", "bf16")
    model: Any = convolutional(extra=name == "layer" and not after)
    images, labels = torch.rand(batch, 3, 32, 32), torch.ones(batch, dtype=torch.long)
    if flat:
        width, layers = (1024, 4) if name == "bf16" else (128, 40)
        blocks = [m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())]
        model = nn.Sequential(*blocks, nn.Linear(width, 10))
        images, labels = torch.rand(64, width), torch.ones(64, dtype=torch.long)
    if PAIRS[name].ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    numbers = count()
    optimizer = torch.optim.Adam(model.parameters(), fused=True if name == "optimizer" and after else None)
    data: Any = Pictures(60)
    workers = 2 if after else 0
    loader = torch.utils.data.DataLoader(data, batch, num_workers=workers) if name == "loader" else None
    batches = iter(loader) if loader is not None else repeat((images, labels))

    def step() -> None:
        images, labels = next(batches)
        number = next(numbers)
        if not after and ((name in ("straggler", "hidden") and rank == 1) or (name == "turns" and rank == number % 2)):
            extra("augment", 3)
        if name == "hidden" and rank == 0:
            extra("evaluate", 2)
        with torch.autocast("cpu", torch.bfloat16, enabled=name == "bf16" and after):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if name == "item" and not after:
            loss.item()

    return step


def exported(recorded: Any, path: str) -> None:
    """Writes a recording."""
    recorded.export_chrome_trace(path)


def train(name: str, rank: int, out: str) -> None:
    """Records both sides of a pair in turns, so that what else the machine does disturbs both alike."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if PAIRS[name].ranks > 1:
        os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(PORT)}
        torch.distributed.init_process_group("gloo", rank=rank, world_size=PAIRS[name].ranks)
    steps = [script(name, after, rank) for after in (False, True)]
    for window in range(2 * WINDOWS):
        path = f"{out}{window}.json"
        plan = schedule(wait=0, warmup=SKIPPED, active=STEPS)
        with profile(
            activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=partial(exported, path=path)
        ) as recorder:
            for _ in range(SKIPPED + STEPS):
                steps[window % 2]()
                recorder.step()
    if PAIRS[name].ranks > 1:
        torch.distributed.destroy_process_group()


def ratio(work: Callable[[], Any], other: Callable[[], Any], times: int = 60) -> float:
    """Time of one piece of work of that of another: medians of many, in turns."""
    spent: list[list[float]] = [[], []]
    for _ in range(times):
        for part, mine in zip((work, other), spent, strict=True):
            begun = time.perf_counter()
            part()
            mine.append(time.perf_counter() - begun)
    return median(spent[0]) / median(spent[1])


def fused_factor() -> float:
    """Adam's step fused, of the one that is not."""
    import torch

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)

    def steps(fused: bool) -> Callable[[], Any]:
        weights = [torch.rand(shape, requires_grad=True) for _ in range(40) for shape in ((128, 128), (128,))]
        for weight in weights:
            weight.grad = torch.rand_like(weight)
        return torch.optim.Adam(weights, fused=fused).step

    return ratio(steps(True), steps(False))


def batch_factor() -> float:
    """The layers with twice the batch, forward and backward, of those with one."""
    import torch

    torch.set_num_threads(1)
    layers = convolutional(extra=False)[:-2]
    works = [lambda size=size: layers(torch.rand(size, 3, 32, 32)).sum().backward() for size in (16, 8)]
    return ratio(works[0], works[1])


def bf16_factor() -> float:
    """Linear layers under autocast, forward and backward with their casts, of those in float32."""
    import torch

    torch.set_num_threads(1)
    layers = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4)))
    batch = torch.rand(64, 1024)

    def work(on: bool) -> None:
        layers.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            out = layers(batch)
        out.sum().backward()

    return ratio(lambda: work(True), lambda: work(False))


GROWS = "; ".join(f"operator[name~{one}]*{{factor}}" for one in ("conv", "norm", "relu", "pool"))
PAIRS = {
    "loader": Pair("DataLoader workers 0 → 2", "dataloader=0"),
    "batch": Pair("batch 8 → 16", GROWS, factor=batch_factor),
    "item": Pair("`.item()` of each step removed", "operator[aten::item]=0"),
    "optimizer": Pair("Adam → `fused=True`", "host[name~Optimizer.step]*{factor}", factor=fused_factor),
    "bf16": Pair(
        "bfloat16 autocast", "operator[name~Addmm]*{factor}; operator[aten::linear]*{factor}", factor=bf16_factor
    ),
    # Their parameters go, too: 4 of 18.
    "layer": Pair(
        "two GroupNorm removed",
        "operator[name~group_norm]=0; operator[name~GroupNorm]=0; host[name~Optimizer.step]*0.778",
    ),
    "straggler": Pair("2 ranks of gloo, one with more work → none", "rank[1]=median", ranks=2),
    "hidden": Pair("2 ranks, one augments, the other evaluates → no augmentation", "host[augment]=0", ranks=2),
    "turns": Pair("2 ranks that augment in turns → neither does", "host[augment]=0", ranks=2),
}


def record(name: str, folder: Path) -> list[list[Path]]:
    """Return the files of the ranks of each recording, those before and after the change in turns."""
    ranks = range(PAIRS[name].ranks)
    stems = [folder / f"rank{rank}-" for rank in ranks]
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.pairs", "--train", name]
    processes = [subprocess.Popen([*command, str(rank), str(stems[rank])]) for rank in ranks]
    if sum(process.wait() != 0 for process in processes):
        raise RuntimeError(f"{name} was not recorded")
    return [[Path(f"{stem}{window}.json") for stem in stems] for window in range(2 * WINDOWS)]


def forecast(paths: Sequence[Path], change: str) -> dict[str, float | None]:
    """Milliseconds of a step: measured, predicted, and after plain subtraction."""
    traces = [read_trace(str(path)) for path in paths]
    answer = view("whatif") if len(traces) == 1 else view("ranks")
    subject: Any = traces[0] if len(traces) == 1 else [(path.stem, t) for path, t in zip(paths, traces, strict=True)]
    step: Any = answer.compute(subject, answer.parse({"change": change})).step  # pyright: ignore[reportAttributeAccessIssue]
    less = step.measured_ns - waited(traces) if change.startswith("rank") else subtracted(traces, change)
    figures = {"measured": step.measured_ns, "predicted": step.predicted_ns, "subtracted": less}
    return {name: None if ns is None else ns / 1e6 for name, ns in figures.items()}


def subtracted(traces: Sequence[Trace], change: str) -> float:
    """The step less the time of what is changed, or more of it: of the rank that has most of it."""
    steps = [(trace.steps.ts[0], trace.steps.ts[-1] + trace.steps.dur[-1], len(trace.steps)) for trace in traces]
    less = [0.0] * len(traces)
    for part in parse_changes(change):
        for number, trace in enumerate(traces):
            rows = np.flatnonzero(np.logical_or(*affected_events(trace, part)))
            spans = union(trace.events.ts[rows], trace.events.end[rows])
            low, high = (np.array([bound]) for bound in steps[number][:2])
            less[number] += (1 - part.factor) * float(covered_ns(spans, low, high)[0]) / steps[number][2]
    low, high, count = steps[0]
    return float(high - low) / count - (max(less) if max(less) > 0 else min(less))


def waited(traces: Sequence[Trace]) -> float:
    """Time of a step in which the rank that waits most only waits in collectives."""
    ranks = run_view("distributed")
    answer: Any = ranks.compute_from_traces([(str(n), t) for n, t in enumerate(traces)], ranks.parse({}))
    columns = answer.waits.columns
    waits = np.bincount(np.asarray(columns.rank), np.asarray(columns.wait_ns, np.float64))
    return float(waits.max()) / len(traces[0].steps)


def measure(name: str, out: Path) -> dict[str, Any]:
    """A pair: medians over its recordings, and of the errors of each forecast against the recording after it."""
    pair = PAIRS[name]
    change = pair.change.format(factor=f"{pair.factor() if pair.factor else 1.0:.4f}")
    files = record(name, out / name)
    before = [forecast(paths, change) for paths in files[0::2]]
    after = [forecast(paths, "")["measured"] or np.nan for paths in files[1::2]]
    errors = {
        key: [
            other / one - 1 for other, one in zip((at[key] for at in before), after, strict=True) if other is not None
        ]
        for key in ("predicted", "subtracted")
    }
    figures = {key: median([value for value in (at[key] for at in before) if value is not None]) for key in before[0]}
    return {"pair": pair.title, "change": change, **figures, "after": median(after), "errors": errors, "afters": after}


def line(found: dict[str, Any]) -> str:
    """A row of the table in docs/whatif.md."""
    error, less = (found["errors"][key] for key in ("predicted", "subtracted"))
    spread = f"{np.quantile(error, 0.25):+.0%} .. {np.quantile(error, 0.75):+.0%}"
    figures = (f"{found[key]:.1f} ms" for key in ("measured", "predicted", "after"))
    return f"| {found['pair']} | {' | '.join(figures)} | {median(error):+.0%} ({spread}) | {median(less):+.0%} |"


def main() -> None:
    """Records and compares."""
    if sys.argv[1:2] == ["--train"]:
        name, rank, out = sys.argv[2:]
        train(name, int(rank), out)
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=PAIRS)
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for name in [options.only] if options.only else PAIRS:
        results.append(measure(name, options.out))
        print(line(results[-1]), flush=True)
    (options.out / "pairs.json").write_text(json.dumps(results, indent=1))
    errors = {
        key: median([abs(median(result["errors"][key])) for result in results]) for key in ("predicted", "subtracted")
    }
    print(f"median error: forecast {errors['predicted']:.1%}, subtraction {errors['subtracted']:.1%}")


if __name__ == "__main__":
    main()
