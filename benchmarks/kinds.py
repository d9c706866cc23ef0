"""The kinds of profiles that the speed measurements open, each written with about so many events.

python -m benchmarks.kinds FOLDER [--events 1000000] [KIND ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks import chrome_file, kineto_file, nccl_file, stacks_file
from benchmarks.memory import write_memory_trace
from benchmarks.recordings import SHARED, repeated

Writer = Callable[[Path, int], None]
# What each kind is, and its writer.
MADE: dict[str, tuple[str, Writer]] = {
    "generated": ("operators with shapes, kernels, memory", kineto_file.write),
    "nccl": ("kernels with correlations, NCCL", nccl_file.write),
    "stacks": ("Python stacks, minified, epoch times", stacks_file.write),
    "memory": ("memory instants", write_memory_trace),
    "chrome": ("Chrome: begin, end, asynchronous, counters", chrome_file.write),
    "gigabyte": ("a gigabyte of what `generated` is", kineto_file.write),
    "huge": ("ten million events", kineto_file.write),
}
# What each kind is, and its recording, beside the checkout.
RECORDED: dict[str, tuple[str, Path]] = {
    "repeated": (
        "torch on a V100 with NCCL and memory, recorded",
        SHARED / "kineto/hta/df_index_resolver__v100_rank1of2_nccl_memory.json.gz",
    ),
    "resnet50": (
        "torch, ResNet50 training, recorded",
        SHARED / "kineto/tb_plugin/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz",
    ),
    "vllm": ("vLLM with CUDA graphs, recorded", SHARED / "tracelens/vllm_decode/graph_execution.json.gz"),
    "paddle": (
        "Paddle, recorded",
        SHARED / "paddle/medium/host_rank0_time_2026_11_20_03_52_43_834976.paddle_trace.json",
    ),
    "megengine": ("MegEngine, recorded", SHARED / "megengine/train/resnet18_w16.chrome_timeline.json.gz"),
    "onnxruntime": ("ONNX Runtime, recorded", SHARED / "onnxruntime/ort_tinybert_b2s64_opt_all.json"),
}
# Opened in every way, and in fewer ways and rounds.
MAIN = ("generated", "nccl", "stacks", "memory", "repeated")
FURTHER = ("resnet50", "vllm", "paddle", "megengine", "onnxruntime", "chrome")


def title(kind: str) -> str:
    """A kind of profile."""
    return (MADE.get(kind) or RECORDED[kind])[0]


def written(folder: Path, kinds: Iterable[str], events: int) -> dict[str, Path]:
    """The file of each kind whose recording is there; those that are not there yet are written side by side.

    Each gets so many events; a gigabyte and the huge one more, ONNX Runtime's long events three tenths of them.
    """
    counts = {"gigabyte": events * 27 // 10, "huge": events * 10, "onnxruntime": events * 3 // 10}
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kind: folder / f"{kind}.json" for kind in kinds if kind in MADE or RECORDED[kind][1].exists()}
    with ProcessPoolExecutor() as pool:
        traces = [
            pool.submit(_write, kind, path, counts.get(kind, events))
            for kind, path in paths.items()
            if not path.exists()
        ]
    for trace in traces:
        trace.result()
    return paths


def _write(kind: str, path: Path, events: int) -> None:
    if kind in MADE:
        MADE[kind][1](path, events)
    else:
        repeated(RECORDED[kind][1], path, events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kinds", nargs="*", default=MAIN + FURTHER)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    for path in written(options.folder, options.kinds, options.events).values():
        print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
