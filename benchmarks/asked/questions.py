"""The questions that each tool answers: their data, their parameters, and the columns that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

LIMIT_NS = 1_000_000
TRAINING, LOADING, SERVER, RANKS, PYTHON, ONCE = "training", "loading", "server", "ranks", "python", "once"


class Question(NamedTuple):
    """A stored query.

    Attributes:
        data: Names of its recordings.
        compared: Numbers of the columns of visualprof's answer that other tools compute.
        parameters: Parameters of the stored query.
    """

    data: tuple[str, ...]
    compared: tuple[int, ...]
    parameters: Mapping[str, Any] = MappingProxyType({})


QUESTIONS: dict[str, Question] = {
    "layer_kernels": Question((TRAINING,), (0, 1, 2, 3, 4), {"module": "Linear_1"}),
    "range_kernels": Question((TRAINING,), (0, 1, 2, 3), {"range": "optimizer"}),
    "between_markers": Question((TRAINING,), (1, 2, 4), {"first": "forward", "second": "optimizer"}),
    "top_kernels": Question((TRAINING,), (0, 1, 2, 3, 4, 5)),
    "source_lines": Question((PYTHON,), (0, 1, 2, 3)),
    "gemm_shapes": Question((TRAINING,), (0, 1, 2, 3)),
    "launches": Question((TRAINING,), (2, 3, 5, 6)),
    "argument": Question((TRAINING,), (0, 1, 2, 3), {"key": "grid"}),
    "chosen_steps": Question((TRAINING,), (0, 1, 2, 3), {"step": "3"}),
    "exposed_communication": Question((RANKS,), (0, 2, 4, 5)),
    "collectives": Question((RANKS,), (0, 5, 6)),
    "gaps": Question((SERVER,), (1, 2, 3, 4)),
    "launch_delays": Question((TRAINING,), (0, 1, 2, 3, 4, 5)),
    "loader_waits": Question((LOADING,), (1, 2, 3)),
    "compare_traces": Question((LOADING, TRAINING), (0, 1, 2, 4, 5)),
    "phases": Question((SERVER,), (0, 1, 2, 3)),
    "peak_allocations": Question((ONCE,), (1, 3, 4)),
    "module_memory": Question((ONCE,), (1, 2, 3, 4)),
    "outermost_operators": Question((TRAINING,), (3, 2)),
    "kernel_pairs": Question((TRAINING,), (0, 1, 2, 3, 4), {"max_ns": LIMIT_NS}),
}
