"""A memory snapshot after a provoked failure, compared with the allocator's own numbers."""

from __future__ import annotations

import contextlib
from pathlib import Path

from visualprof.gpu_kit import Oracle, Skip
from visualprof.gpu_kit.accelerator import Accelerator
from visualprof.gpu_kit.answers import answer
from visualprof.reader import read_trace

TITLE = "memory snapshot of a failure"
BUDGET_S, PRIORITY = 15, 30
NEEDS = ("torch",)
TOLERANCES = {"": 0.0}
SNAPSHOT, MIB = "snapshot.pickle", 1 << 20
SIZES_MIB = (1, 3, 20, 64, 200)


def record(accelerator: Accelerator, folder: Path) -> Oracle:
    """Allocate some blocks, free every second one, and ask for more than the device has."""
    if accelerator.kind != "cuda":
        raise Skip(f"PyTorch records no memory history on {accelerator.kind}")
    torch = accelerator.torch
    torch.cuda.memory._record_memory_history(max_entries=10_000)  # noqa: SLF001 - PyTorch's documented way
    blocks = [torch.empty(size * MIB, dtype=torch.uint8, device="cuda") for size in SIZES_MIB]
    del blocks[::2]
    requested = (torch.cuda.get_device_properties(0).total_memory // MIB + 512) * MIB
    with contextlib.suppress(torch.cuda.OutOfMemoryError):
        torch.empty(requested, dtype=torch.uint8, device="cuda")
    values = {
        "allocated, bytes": float(torch.cuda.memory_allocated()),
        "reserved, bytes": float(torch.cuda.memory_reserved()),
        "requested by the failed call, bytes": float(requested),
    }
    torch.cuda.memory._dump_snapshot(str(folder / SNAPSHOT))  # noqa: SLF001
    torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001
    return Oracle(values=values, files=[SNAPSHOT])


def read(folder: Path, oracle: Oracle) -> dict[str, float]:
    """Return the state at the end of the snapshot, and the size of the failed allocation."""
    state = answer(read_trace(folder / SNAPSHOT), "snapshot", at="end")
    values = {"allocated, bytes": float(state.allocated_bytes), "reserved, bytes": float(state.reserved_bytes)}
    if state.failure is not None:
        values["requested by the failed call, bytes"] = float(state.failure.needed_bytes)
    return {name: values[name] for name in oracle.values if name in values}
