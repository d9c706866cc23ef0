"""Answer the questions with HTA: `python -m benchmarks.asked.in_hta PATHS.pickle`.

HTA has frames of events in microseconds and the launch of each kernel, but no modules, ranges or memory.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.asked.answering import Data, answer_all
from benchmarks.asked.in_pandas import rows
from benchmarks.asked.questions import LOADING, TRAINING

NEEDED = {f"{name}.pt.trace.json" for name in (TRAINING, LOADING)}


def events(path: Path) -> Any:
    """Return the events of a recording with their names, `None` if no question needs them."""
    if path.name not in NEEDED:
        return None
    logging.disable(logging.CRITICAL)
    trace: Any = importlib.import_module("hta.common.trace").Trace(
        trace_files={0: str(path)}, trace_dir=str(path.parent)
    )
    trace.parse_traces(use_multiprocessing=False)
    names, frame = trace.symbol_table.get_sym_table(), trace.get_trace(0)
    return frame.assign(text=frame["name"].map(names.__getitem__), kind=frame["cat"].map(names.__getitem__))


def answers(data: Data) -> dict[str, Callable[[], Any]]:
    """Return the functions that answer, by question."""
    training, loading = data[TRAINING][0], data[LOADING][0]

    def kernels(frame: Any) -> Any:
        return frame[frame["kind"] == "kernel"]

    def launches() -> Any:
        calls = training[["index", "text", "ts", "dur"]]
        return kernels(training).merge(calls, left_on="index_correlation", right_on="index", suffixes=("", "_call"))

    def delays() -> Any:
        joined = launches()
        return joined.groupby("stream")["ts_call"].count().reset_index()

    def compare() -> Any:
        base, new = (kernels(frame).groupby("text")["dur"].size() for frame in (loading, training))
        return base.to_frame("base").join(new.to_frame("new"), how="outer").fillna(0).reset_index()

    return {
        "top_kernels": lambda: kernels(training).groupby("text")["dur"].size().reset_index(),
        "launches": lambda: launches()[["text", "text_call"]],
        "launch_delays": delays,
        "compare_traces": compare,
    }


if __name__ == "__main__":
    answer_all(events, answers, rows)
