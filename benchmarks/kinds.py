"""The kinds of profiles that the speed measurements open, each written with about so many events.

python -m benchmarks.kinds FOLDER [--events 1000000] [KIND ...]
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from pathlib import Path

from benchmarks import chrome_file, kineto_file, nccl_file, stacks_file
from benchmarks.memory import write_memory_trace
from benchmarks.recordings import SHARED, repeated

Writer = Callable[[Path, int], None]


def _recording(source: str) -> Writer:
    return functools.partial(repeated, SHARED / source)


# Writers by kind, and what each writes; those of real recordings need the recordings beside the checkout.
KINDS: dict[str, tuple[str, Writer]] = {
    "generated": ("operators with shapes, kernels, memory", kineto_file.write),
    "nccl": ("kernels with correlations, NCCL", nccl_file.write),
    "stacks": ("Python stacks, minified, epoch times", stacks_file.write),
    "memory": ("memory instants", write_memory_trace),
    "repeated": (
        "torch on a V100 with NCCL and memory, recorded",
        _recording("kineto/hta/df_index_resolver__v100_rank1of2_nccl_memory.json.gz"),
    ),
    "paddle": (
        "Paddle, recorded",
        _recording("paddle/medium/host_rank0_time_2026_11_20_03_52_43_834976.paddle_trace.json"),
    ),
    "megengine": ("MegEngine, recorded", _recording("megengine/train/resnet18_w16.chrome_timeline.json.gz")),
    "onnxruntime": ("ONNX Runtime, recorded", _recording("onnxruntime/ort_tinybert_b2s64_opt_all.json")),
    "chrome": ("begin, end, asynchronous, counters", chrome_file.write),
}
LARGE = ("generated", "nccl", "stacks", "memory", "repeated")


def events_of(kind: str, events: int) -> int:
    """How many events a kind gets where the large ones get so many."""
    return events if kind in LARGE else events * 3 // 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    for kind in options.kinds:
        path = options.folder / f"{kind}.json"
        KINDS[kind][1](path, events_of(kind, options.events))
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
