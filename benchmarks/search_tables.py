"""Records tables of costs for searches that are replayed: `python -m benchmarks.search_tables`, half an hour.

Every setting of some models is measured: the least time of a sample over short bursts in several passes, which other
work on the machine disturbs least. A table whose costs do not recur in a second pass tells of that work: it is left
out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import MODELS
from visualprof.remote.backends import Feeds, backend
from visualprof.remote.child.load import Loader
from visualprof.remote.child.search.space import Space, apply_setting
from visualprof.remote.protocol import Load, Measure, Spec

FILE = Path(__file__).with_name("search_tables.json")
PASSES, BURSTS, BURST_S = 3, 6, 0.01
RECURS = 1.15  # second least to least cost of a setting, in the middle
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


Inputs = Mapping[str, tuple[tuple[int, ...], str]]
TOKENS: Inputs = {"input_ids": ((64,), "int64"), "attention_mask": ((64,), "int64")}
PICTURES: Inputs = {"input": ((3, 96, 96), "float32")}
RESNET, BERT = MODELS / "resnet10_dynbatch.onnx", MODELS / "tinybert_scoped_dyn.onnx"
TWO = ("1", "2")
ORT = {
    "optimization": ("all", "extended", "basic", "disable"),
    "execution": ("sequential", "parallel"),
}
OPENVINO = {"precision": ("f32", "bf16"), "hint": ("none", "latency", "throughput")}
ODD = ("1", "3", "5", "8", "12", "16", "24", "32")
CASES = (
    Case("resnet10", "onnxruntime", RESNET, PICTURES, {"batch": BATCHES, "threads": TWO, "streams": TWO, **ORT}),
    Case("tinybert", "openvino", BERT, TOKENS, {"batch": BATCHES, "threads": TWO, "streams": TWO, **OPENVINO}),
    Case(
        "resnet10",
        "openvino",
        RESNET,
        PICTURES,
        {"batch": BATCHES, "threads": TWO, "streams": ("1", "2", "3"), **OPENVINO},
    ),
    Case("tinybert", "onnxruntime", BERT, TOKENS, {"batch": BATCHES, "threads": TWO, "streams": TWO, **ORT}),
    Case(
        "tinybert of torch.export",
        "onnxruntime",
        MODELS / "tinybert_dynamo.onnx",
        TOKENS,
        {"batch": ODD, "threads": TWO, "streams": TWO, "optimization": ORT["optimization"]},
    ),
)


def cost(case: Case, setting: Mapping[str, str]) -> float:
    """Least ns of a sample over some bursts of a pass."""
    runtime, batch, lanes = backend(case.runtime), int(setting["batch"]), int(setting["streams"])
    feeds = case.feeds(batch)
    spec = apply_setting(Spec("bench", case.runtime), setting, list(runtime.options), {})
    session = runtime.load(case.path, spec, feeds)
    prepared = session.prepare(feeds)
    how = Measure(min_s=BURST_S, max_s=1.0, min_n=3 * lanes, load=Load(concurrency=[lanes]))
    bursts = (Loader(session, feeds, how, batch).run(prepared).timed for _ in range(BURSTS))
    least = min(timed.duration_ns / (len(timed.samples) * batch) for timed in bursts)
    session.close()
    return least


def recorded(case: Case) -> dict[str, Any]:
    """A table: the values of each axis, and the least cost of each setting over the passes; {} if they do not recur."""
    space = Space(case.axes)
    passes = [[cost(case, space.setting(at)) for at in range(space.size)] for _ in range(PASSES)]
    least, second = np.sort(passes, 0)[:2]
    if np.median(second / least) > RECURS:
        return {}
    return {"axes": dict(case.axes), "costs_ns": [round(one) for one in least.tolist()]}


def main() -> None:
    """Records all of them."""
    tables = {f"{case.name} with {case.runtime}": recorded(case) for case in CASES}
    FILE.write_text(json.dumps({name: table for name, table in tables.items() if table}))


if __name__ == "__main__":
    main()
