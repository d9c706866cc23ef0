"""A server's knowledge of files and machines, for drafts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from visualprof.remote.protocol import Intervals
from visualprof.remote.queue.store.records import Agent


@dataclass
class Known:
    """Files as inspection found them, by blob, and registered machines."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    machines: list[Agent] = field(default_factory=list)
    intervals: Intervals = field(default_factory=lambda: Intervals(lease_s=3600))  # longer than any run of tests

    urgent = True

    def inspection(self, sha256: str) -> dict[str, Any] | None:
        return self.files.get(sha256)

    def agents(self) -> list[Agent]:
        return self.machines
