"""Profiles for the speed measurements that our generator did not make: real ones, repeated until they are large."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.rows import ROOT

SHARED = ROOT.parent / "shared" / "traces"
# Numbers that link events of one recording; a copy gets its own.
LINKS = ("correlation", "External id", "Ev Idx", "Fwd thread id", "Sequence number")
REAL = {
    "V100, NCCL and memory": SHARED / "kineto/hta/df_index_resolver__v100_rank1of2_nccl_memory.json.gz",
    "V100, ResNet50 training": SHARED
    / "kineto/tb_plugin/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz",
    "vLLM decode, CUDA graphs": SHARED / "tracelens/vllm_decode/graph_execution.json.gz",
}


def repeated(source: Path, out: Path, events: int) -> int:
    """Write a recording again and again, one after the other in time, until it has this many events; their number."""
    with gzip.open(source, "rb") as file:
        document = json.load(file)
    rows = [row for row in document["traceEvents"] if row.get("ph") != "M"]
    names = [row for row in document["traceEvents"] if row.get("ph") == "M"]
    timed = [(float(row["ts"]), float(row.get("dur", 0))) for row in rows if "ts" in row]
    first, last = min(ts for ts, _ in timed), max(ts + dur for ts, dur in timed)
    copies = -(-events // len(rows))
    head = {key: value for key, value in document.items() if key != "traceEvents"}
    with out.open("w") as file:
        file.write(json.dumps(head)[:-1] + (", " if head else "") + '"traceEvents": [\n')
        file.write(json.dumps({"ph": "M", "name": "repeated", "args": {"copies": copies}}))
        for row in names:
            file.write(",\n" + json.dumps(row))
        for copy in range(copies):
            for row in rows:
                file.write(",\n" + json.dumps(_shifted(row, copy, copy * (last - first + 1000.0))))
        file.write("\n]}\n")
    return copies * len(rows) + len(names)


def _shifted(row: dict[str, Any], copy: int, by_us: float) -> dict[str, Any]:
    row = dict(row)
    if "ts" in row:
        row["ts"] = round(float(row["ts"]) + by_us, 3)
    if row.get("ph") in ("s", "f", "t") and isinstance(row.get("id"), int):
        row["id"] += copy << 32
    if (name := row.get("name", "")).startswith("ProfilerStep#"):
        row["name"] = f"ProfilerStep#{int(name.partition('#')[2]) + 1000 * copy}"
    if copy and isinstance(row.get("args"), dict):
        row["args"] = {
            key: value + (copy << 32) if key in LINKS and isinstance(value, int) and value > 0 else value
            for key, value in row["args"].items()
        }
    return row


def recorded(out: Path, steps: int) -> None:
    """Training steps of a small transformer on the CPU, with Python stacks, shapes and memory.

    Raises: ImportError: torch is not installed.
    """
    import torch
    from torch.profiler import profile

    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.Sequential(
        torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.nn.Linear(64, 8)
    )
    optimizer = torch.optim.Adam(model.parameters())
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as recording:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 32, 64)).sum().backward()
            optimizer.step()
            recording.step()
    recording.export_chrome_trace(str(out))


def profiles(folder: Path, events: int) -> Iterator[tuple[str, Path]]:
    """The real recordings that this machine has, large: what each is, and its file.

    Those of others are read from beside the checkout; the last is made here, when torch is installed.
    """
    for name, source in REAL.items():
        if source.exists():
            path = folder / f"{source.name.partition('.')[0]}.json"
            repeated(source, path, events)
            yield name, path
    try:
        recorded(folder / "stacks.json", steps=max(1, events // 6000))
        yield "torch on a CPU, Python stacks and memory", folder / "stacks.json"
    except ImportError:
        pass
