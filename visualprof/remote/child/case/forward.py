"""Validation and inference over the data: default functions, and timers around a case's own functions.

core: time of the model between two device synchronizations. whole: a pass over the data, including loading and
evaluation. Both exclude time that an engine reports as not inference (FlagPerf's foo_time).
"""

from __future__ import annotations

import importlib
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from visualprof.messages import msg
from visualprof.remote.child.host import LoadMeter
from visualprof.remote.child.measure import latency_statistics, warm_up
from visualprof.remote.protocol import Measure

WARM_UP = Measure(warmup_s=0.2, max_s=10.0)
STATISTICS = ("mean_ns", "p50_ns", "p90_ns", "p95_ns", "p99_ns", "stable")
# Quantiles of Student's t for a 95 % interval by degrees of freedom. Beyond 30, the last value is within 4 %.
STUDENT_T = tuple(
    map(
        float,
        """
        12.706 4.303 3.182 2.776 2.571 2.447 2.365 2.306 2.262 2.228 2.201 2.179 2.160 2.145 2.131
        2.120 2.110 2.101 2.093 2.086 2.080 2.074 2.069 2.064 2.060 2.056 2.052 2.048 2.045 2.042
        """.split(),
    )
)
Clock = Callable[[], int]


@dataclass
class Round:
    """One pass over the data.

    Attributes:
        start_ns: Start of the pass.
        ns: Duration of the pass.
        samples: Number of samples.
        calls: Duration of the model per batch, ns.
        foo: Time per batch that is not inference, ns.
        accuracy: Mean score; `None` if unknown.
    """

    start_ns: int
    ns: int = 0
    samples: int = 0
    calls: list[int] = field(default_factory=list[int])
    foo: list[int] = field(default_factory=list[int])
    accuracy: float | None = None


class RoundTimer:
    """Records rounds and calls. Iterating over the data starts a round; calls outside of a round are warm-up."""

    def __init__(self, synchronize: Callable[[], None], batch_size: int, clock: Clock = time.perf_counter_ns) -> None:
        self._synchronize = synchronize
        self._batch_size = batch_size
        self.clock = clock
        self.rounds: list[Round] = []
        self.first_ns: int | None = None
        self.warmup_n = self.warmup_ns = 0
        self._open: Round | None = None

    def timed(self, call: Callable[[list[Any]], tuple[list[Any], float]], inputs: list[Any]) -> tuple[list[Any], float]:
        """Run one batch, with the device idle before and after."""
        self._synchronize()
        start = self.clock()
        outputs, foo = call(inputs)
        self._synchronize()
        took_ns, foo_ns = self.clock() - start, round(float(foo) * 1e9)
        if self.first_ns is None:
            self.first_ns = took_ns
        if self._open:
            self._open.calls.append(took_ns - foo_ns)
            self._open.foo.append(foo_ns)
        return outputs, foo

    def iterate(self, loader: Any) -> Iterator[Any]:
        """Yield the batches of a round."""
        current = Round(self.clock())
        self.rounds.append(current)
        for batch in loader:
            self._open = current
            current.samples += batch_samples(batch, self._batch_size)
            yield batch
            current.ns = self.clock() - current.start_ns
        self._open = None
        current.ns = self.clock() - current.start_ns

    def warm(self, call: Callable[[list[Any]], Any], inputs: list[Any]) -> None:
        """Run a batch until its times settle, outside of all rounds."""
        start = self.clock()
        self.warmup_n = 1 + warm_up(lambda batch: call(batch), inputs, WARM_UP, self.clock)
        self.warmup_ns = self.clock() - start


class TimedData:
    """The data of a case with timers, for functions that iterate over the data themselves."""

    def __init__(self, loader: Any, clocks: RoundTimer) -> None:
        self._loader = loader
        self._clocks = clocks

    def __iter__(self) -> Iterator[Any]:
        return self._clocks.iterate(self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def __getitem__(self, key: Any) -> Any:
        return self._loader[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class TimedEngine:
    """A compiled model with timers around its calls."""

    def __init__(self, engine: Any, clocks: RoundTimer) -> None:
        self._engine = engine
        self._clocks = clocks

    def __call__(self, inputs: list[Any]) -> tuple[list[Any], float]:
        """Run one batch."""
        return self._clocks.timed(self._engine, inputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def run_rounds(
    call: Callable[[list[Any]], tuple[list[Any], float]], loader: Any, evaluator: Any, clocks: RoundTimer, repeat: int
) -> None:
    """Run every round of the data through a model. A batch is (input, ..., target).

    The evaluator gets the output, or a list of several outputs, and the target. It returns a number per sample, or one
    for
    the batch.
    """
    first = next(iter(loader), None)
    if first is None:
        raise ValueError(msg("child.build_dataloader_gave_no", "build_dataloader gave no batch"))
    clocks.warm(lambda inputs: clocks.timed(call, inputs), split_batch(first)[0])
    for _ in range(repeat):
        total, count = 0.0, 0
        for batch in clocks.iterate(loader):
            inputs, target = split_batch(batch)
            outputs, _ = clocks.timed(call, inputs)
            scores = score_array(evaluator(outputs[0] if len(outputs) == 1 else outputs, target))
            weight = 1 if len(scores) > 1 else batch_samples(batch, 1)
            total, count = total + float(scores.sum()) * weight, count + len(scores) * weight
        clocks.rounds[-1].accuracy = total / count if count else None


def model_call(model: Any) -> Callable[[list[Any]], tuple[list[Any], float]]:
    """Return a framework's model as an engine. As in engines, the call includes the transfer of the inputs."""
    if "torch" not in sys.modules:
        return lambda inputs: (_listed(model(*inputs)), 0.0)
    torch: Any = importlib.import_module("torch")
    device = (
        next((tensor.device for tensor in model.parameters()), None) if isinstance(model, torch.nn.Module) else None
    )

    def call(inputs: list[Any]) -> tuple[list[Any], float]:
        with torch.no_grad():
            moved = [
                tensor.to(device) if device is not None and torch.is_tensor(tensor) else tensor for tensor in inputs
            ]
            return _listed(model(*moved)), 0.0

    return call


def _listed(outputs: Any) -> list[Any]:
    return list(cast("list[Any]", outputs)) if isinstance(outputs, (list, tuple)) else [outputs]


def split_batch(batch: Any) -> tuple[list[Any], Any]:
    """Return the inputs and the target of a batch."""
    *inputs, target = batch
    return (_listed(inputs[0]) if len(inputs) == 1 else inputs), target


def batch_samples(batch: Any, default: int) -> int:
    """Return the first size of the first array in a batch."""
    while isinstance(batch, (list, tuple)) and batch:
        batch = cast("list[Any]", batch)[0]
    shape: Any = getattr(cast("Any", batch), "shape", None)
    return int(shape[0]) if shape is not None and len(shape) else default


def score_array(scores: Any) -> Any:
    """Return an evaluator's answer as (n,) float64."""
    if hasattr(scores, "detach"):
        scores = scores.detach().cpu().numpy()
    return np.asarray(scores, np.float64).reshape(-1)


def case_pass(clocks: RoundTimer, meter: LoadMeter, returned: tuple[Any, ...] | None = None) -> dict[str, Any]:
    """Return the `CasePass` that the timers recorded.

    Args:
        clocks: The timers.
        meter: The load of the machine.
        returned: (whole, core, accuracy) that the case's own function returned; `None` without one.
    """
    rounds = [round for round in clocks.rounds if round.ns > 0]
    calls = np.array([call for round in rounds for call in round.calls], np.int64)
    foo_ns, samples = sum(sum(round.foo) for round in rounds), sum(round.samples for round in rounds)
    rows = [_repeat(round) for round in rounds]
    accuracies = [row["accuracy"] for row in rows if row["accuracy"] is not None]
    result: dict[str, Any] = {
        "samples": samples,
        "own": returned is not None,
        "repeats": rows,
        "whole_per_s": _rate(samples, sum(round.ns for round in rounds) - foo_ns),
        "core_per_s": _rate(samples, int(calls.sum())),
        "accuracy": statistics.fmean(accuracies) if accuracies else None,
        "whole_ci": _interval(rows, "whole_per_s"),
        "core_ci": _interval(rows, "core_per_s"),
        "warmup_n": clocks.warmup_n,
        "warmup_ns": clocks.warmup_ns,
        "first_ns": clocks.first_ns,
        "foo_ns": foo_ns,
        "n": len(calls),
        "host_busy": meter.load().busy,
    }
    if len(calls):
        spread = latency_statistics(calls)
        result |= {name: spread[name] for name in STATISTICS}
    if rounds:
        behind = time.time_ns() - clocks.clock()
        result |= {"start_ns": rounds[0].start_ns + behind, "end_ns": rounds[-1].start_ns + rounds[-1].ns + behind}
    if returned is not None:
        result |= {
            name: finite_number(value)
            for name, value in zip(("whole_per_s", "core_per_s", "accuracy"), returned, strict=False)
        }
    return result


def finite_number(value: Any) -> float | None:
    """Return a case's value as a number, `None` if it is not a finite number."""
    try:
        finite = float(value)
    except (TypeError, ValueError):
        return None
    return finite if math.isfinite(finite) else None


def _repeat(round: Round) -> dict[str, Any]:
    whole, core = _rate(round.samples, round.ns - sum(round.foo)), _rate(round.samples, sum(round.calls))
    return {"whole_per_s": whole, "core_per_s": core, "accuracy": round.accuracy}


def _rate(samples: int, ns: int) -> float | None:
    """Return samples per second; `None` if nothing was timed."""
    return samples * 1e9 / ns if ns > 0 else None


def _interval(rows: list[dict[str, Any]], key: str) -> float | None:
    """Return half the width of the mean's 95 % confidence interval (Student's t); `None` with fewer than two values."""
    values = [row[key] for row in rows if row[key] is not None]
    if len(values) < 2:
        return None
    return STUDENT_T[min(len(values) - 1, len(STUDENT_T)) - 1] * statistics.stdev(values) / math.sqrt(len(values))
