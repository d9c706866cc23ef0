"""The folders of a task on the agent's machine."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from visualprof.remote.protocol import Lease


class Work:
    """Below one folder.

    box: the child's own, with task.json, events.jsonl and out/. files: model, inputs and code, which it may only read.
    monitor, log: the agent's, out of the child's reach until it has ended. mark: names the task's processes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = str(folder)
        self.box = folder / "box"
        self.out = self.box / "out"
        self.events = self.box / "events.jsonl"
        self.task = self.box / "task.json"
        self.files = folder / "files"
        self.code = self.files / "code.pyz"
        self.monitor = folder / "monitor.jsonl"
        self.log = folder / "log.txt"

    def lay_out(self, lease: Lease, model: Path, inputs: dict[str, Path], stages: list[str]) -> None:
        """Makes the child's folder, with task.json."""
        self.out.mkdir(parents=True)
        task = {
            "lease": asdict(lease),
            "model": str(model),
            "inputs": {name: str(path) for name, path in inputs.items()},
            "out": str(self.out),
            "events": str(self.events),
            "stages": stages,
        }
        self.task.write_text(json.dumps(task), "utf-8")


def free_bytes(folder: Path) -> int:
    """Room on the disk of a folder."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
