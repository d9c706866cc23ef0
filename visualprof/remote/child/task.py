"""What the agent laid down for the child."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visualprof.remote.protocol import Lease, build


@dataclass(frozen=True)
class Task:
    """`task.json`. inputs: local .npy files by the input's name. out: folder of the result. events: file of events."""

    lease: Lease
    model: Path
    inputs: dict[str, Path]
    out: Path
    events: Path


def read_task(work: Path) -> Task:
    """The task of a work folder; paths in it may be relative to the folder.

    Raises: OSError, ValueError, KeyError, TypeError: it is not what an agent writes.
    """
    given: dict[str, Any] = json.loads((work / "task.json").read_text("utf-8"))
    inputs: dict[str, str] = given.get("inputs") or {}
    return Task(
        lease=build(Lease, given["lease"]),
        model=work / given["model"],
        inputs={name: work / path for name, path in inputs.items()},
        out=work / given["out"],
        events=work / given["events"],
    )
