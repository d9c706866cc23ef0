"""What measuring costs: the median latency that the child reports against a bare loop over the same session.

The bare loop calls the runtime itself. Rounds of both alternate in one process; the figure is the median of
the ratios of their medians.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import Row
from visualprof.remote.backends import Feeds, backend
from visualprof.remote.child.measure import time_runs
from visualprof.remote.protocol import Spec

ROOT = Path(__file__).parents[1]
MODELS = ROOT / ".recordings" / "models" / "onnx"
SCRIPT = ROOT / "tests" / "fixtures" / "graphs" / "torch_cnn_script.pt"
ROUNDS, ROUND_S, AT_MOST = 21, 0.15, 1.02
TOKENS = np.ones((1, 64), np.int64)
CASES: list[tuple[str, str, Path, Feeds]] = [
    ("resnet10, batch 1", "onnxruntime", MODELS / "resnet10_dynbatch.onnx", {"input": np.ones((1, 3, 96, 96), "f4")}),
    (
        "tinybert, batch 1, 64 tokens",
        "onnxruntime",
        MODELS / "tinybert_scoped_dyn.onnx",
        {"input_ids": TOKENS, "attention_mask": TOKENS},
    ),
    ("a small CNN, batch 1", "torch", SCRIPT, {"x": np.ones((1, 3, 16, 16), "f4")}),
]


def bare_call(session: Any, prepared: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function for one run without visualprof, and its arguments."""
    if hasattr(session, "_module"):
        return session._module, prepared[0]  # noqa: SLF001
    return session._session.run, (None, prepared)  # noqa: SLF001


def bare_p50(call: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> float:
    """Median ns of a plain loop."""
    took: list[int] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter_ns()
        call(*arguments)
        took.append(time.perf_counter_ns() - start)
    return statistics.median(took)


def compare(runtime: str, path: Path, feeds: Feeds) -> tuple[float, float, float]:
    """Ours over bare, and the median ns of ours and of the bare loop."""
    session = backend(runtime).load(path, Spec("bench", runtime, threads=1), feeds)
    prepared = session.prepare(feeds)
    call, arguments = bare_call(session, prepared)
    bare_p50(call, arguments, 0.5)
    ours: list[float] = []
    bare: list[float] = []
    for i in range(ROUNDS):
        for mine in (True, False) if i % 2 else (False, True):  # so that a drift hits both alike
            if mine:
                ours.append(float(np.median(time_runs(session.infer, prepared, ROUND_S, 60.0, 20).samples)))
            else:
                bare.append(bare_p50(call, arguments, ROUND_S))
    session.close()
    ratio = statistics.median(a / b for a, b in zip(ours, bare, strict=True))
    return ratio, statistics.median(ours), statistics.median(bare)


def harness() -> Iterator[Row]:
    """Lines of the report: what, figure, bar, met."""
    for name, runtime, path, feeds in CASES:
        label = f"p50 latency compared with a bare loop: {runtime}, {name}"
        if importlib.util.find_spec(runtime) is None or not path.exists():
            yield Row(label, f"not measured: needs {path.name if not path.exists() else runtime}")
            continue
        ratio, ours, bare = compare(runtime, path, feeds)
        figure = f"{ours / 1e3:.1f} us vs {bare / 1e3:.1f} us = {ratio:.3f} x"
        yield Row(label, figure, f"at most {AT_MOST} x", ratio <= AT_MOST)


if __name__ == "__main__":
    for line in harness():
        print(line.line())
