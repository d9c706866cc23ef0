"""Profiles for the speed measurements that our generator did not make: real ones, repeated until they are large."""

from __future__ import annotations

import functools
import gzip
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from benchmarks.rows import ROOT

SHARED = ROOT.parent / "shared" / "traces"
# What differs between the copies of a recording: times, numbers that link events, numbers of steps.
MOVING = re.compile(
    r'("ts"\s*:\s*|"(?:start|end)_time"\s*:\s*"|Profiler?Step#'
    r'|"(?:correlation|External id|Ev Idx|Fwd thread id|Sequence number|id|__id__)"\s*:\s*)'
    r"(-?\d+(?:\.\d+)?)"
)
REAL = {
    "V100, NCCL and memory": SHARED / "kineto/hta/df_index_resolver__v100_rank1of2_nccl_memory.json.gz",
    "V100, ResNet50 training": SHARED
    / "kineto/tb_plugin/resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz",
    "vLLM decode, CUDA graphs": SHARED / "tracelens/vllm_decode/graph_execution.json.gz",
}


def repeated(source: Path, out: Path, events: int) -> None:
    """Write a recording again and again, one after the other in time, until it has this many events.

    The text stays as its writer laid it out; only times, links and the numbers of steps move on.
    """
    data = source.read_bytes()
    text = (gzip.decompress(data) if source.suffix == ".gz" else data).decode()
    listed = text.startswith("[")
    start = text.index("[", 0 if listed else text.index('"traceEvents"'))
    rows, end = json.JSONDecoder().raw_decode(text, start)
    timed = [(float(row["ts"]), float(row.get("dur", 0))) for row in rows if row.get("ph") != "M" and "ts" in row]
    span = 1000 + int(max(ts + dur for ts, dur in timed) - min(ts for ts, _ in timed))
    body = text[start + 1 : end - 1].rstrip()
    last = re.search(r",\s*\{\s*\}$", body)  # Paddle's lists end with an empty event
    body, tail = (body[: last.start()], last.group()) if last else (body, "")
    with out.open("w") as file:
        file.write(text[: start + 1])
        for copy in range(-(-events // len(rows))):
            file.write(("," if copy else "") + MOVING.sub(functools.partial(_moved, copy, copy * span), body))
        file.write(tail + text[end - 1 :])


def _moved(copy: int, by_us: int, found: re.Match[str]) -> str:
    key, number = found.groups()
    if key.startswith(('"ts"', '"start_time"', '"end_time"')):
        return f"{key}{Decimal(number) + by_us}"
    if key.endswith("#"):
        return f"{key}{int(number) + 1000 * copy}"
    return f"{key}{int(number) + (copy << 32 if int(number) > 0 else 0)}"


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
