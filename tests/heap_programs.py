"""Memory snapshots of small programs, in the form that torch writes: one expandable segment, a block per allocation."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

BASE = 0x7F0000000000
FIRST_US = 1_790_000_000_000_000
ROUND = 512
FORWARD = ("/job/model.py:10:forward", "/torch/nn/modules/module.py:1700:_call_impl", "/job/train.py:5:step")
BACKWARD = ("??:0:torch::autograd::Engine::evaluate_function",)
OPTIMIZER = ("/torch/optim/adam.py:200:_init_group", "/torch/optim/adam.py:300:step", "/job/train.py:9:step")


class Program:
    """A program whose allocations are recorded. Every entry takes 10 us.

    Attributes:
        entries: Entries of the history.
        annotations: Steps and other named ranges.
    """

    def __init__(self, first_us: int = FIRST_US) -> None:
        self.entries: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self._now, self._head = first_us, BASE
        self._live: dict[int, tuple[int, list[dict[str, Any]]]] = {}

    def alloc(self, size: int, frames: tuple[str, ...] = ()) -> int:
        """Allocate a block at a new address, and return the address."""
        addr, stack = self._head, [_frame(text) for text in frames]
        self._head += -(-size // ROUND) * ROUND
        self._live[addr] = size, stack
        self._record("alloc", addr, size, stack)
        return addr

    def free(self, *addresses: int) -> None:
        """Release blocks."""
        for addr in addresses:
            size, stack = self._live.pop(addr)
            self._record("free_requested", addr, size, stack)
            self._record("free_completed", addr, size, stack)

    def start(self, name: str) -> None:
        """Start a named range."""
        self._annotate("START", name)

    def end(self, name: str) -> None:
        """End a named range."""
        self._annotate("END", name)

    def write(self, path: Path) -> Path:
        """Write the snapshot, and return its path."""
        size = self._head - BASE + (1 << 20)
        mapped = {**_entry("segment_map", BASE, size, FIRST_US), "time_us": self._first_us()}
        path.write_bytes(
            pickle.dumps(
                {
                    "segments": [self._segment(size)],
                    "device_traces": [[mapped, *self.entries]],
                    "allocator_settings": {"expandable_segments": True, "max_split_size": -1},
                    "external_annotations": self.annotations,
                },
                protocol=4,
            )
        )
        return path

    def _first_us(self) -> int:
        return self.entries[0]["time_us"] - 1

    def _segment(self, size: int) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = []
        at = BASE
        for addr in [*sorted(self._live), BASE + size]:
            if addr > at:
                blocks.append(_block(at, addr - at, 0, "inactive", []))
            if addr in self._live:
                requested, stack = self._live[addr]
                blocks.append(_block(addr, -(-requested // ROUND) * ROUND, requested, "active_allocated", stack))
                at = addr + blocks[-1]["size"]
        return {
            "device": 0,
            "address": BASE,
            "total_size": size,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": True,
            "frames": [],
            "blocks": blocks,
        }

    def _record(self, action: str, addr: int, size: int, stack: list[dict[str, Any]]) -> None:
        self._now += 10
        self.entries.append({**_entry(action, addr, size, self._now), "frames": stack})

    def _annotate(self, stage: str, name: str) -> None:
        self._now += 10
        self.annotations.append({"stage": stage, "name": name, "device": 0, "time_us": self._now})


def _entry(action: str, addr: int, size: int, time_us: int) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us}


def _block(addr: int, size: int, requested: int, state: str, stack: list[dict[str, Any]]) -> dict[str, Any]:
    return {"address": addr, "size": size, "requested_size": requested, "state": state, "frames": stack}


def _frame(text: str) -> dict[str, Any]:
    path, line, name = text.split(":", 2)
    return {"filename": path, "line": int(line), "name": name}
