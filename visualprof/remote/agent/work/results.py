"""The agent's own files of a result: job.json, env.json, status.json, the model, the log."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from visualprof.remote.agent.faults import Outcome
from visualprof.remote.agent.files import clear
from visualprof.remote.agent.work.events import plain
from visualprof.remote.backends import backend
from visualprof.remote.protocol import JOB_SCHEMA, Capabilities, Lease

RESERVED = {
    "job.json", "env.json", "status.json", "points.jsonl", "latencies.bin", "monitor.jsonl", "timeline.json",
    "profile.json", "executed.onnx", "log.txt",
}  # fmt: skip


PROFILE_KEYS = ("pass", "file", "start_ns", "batch", "runs", "error")


def model_name(name: str) -> str:
    """A model's name as a plain file name that is none of the result's own."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", PurePosixPath(name.replace("\\", "/")).name).lstrip(".")[-120:] or "model"
    return f"model-{plain}" if plain in RESERVED else plain


def job(lease: Lease) -> dict[str, Any]:
    """What was asked for. The server, which has the model, puts it beside the result under the name `file`."""
    given = lease.request.model
    model = {"name": given.name, "sha256": given.blob, "format": _format(lease), "file": model_name(given.name)}
    return {
        "schema": JOB_SCHEMA,
        "job": lease.job,
        "task": lease.task,
        "attempt": lease.attempt,
        "name": lease.request.name,
        "model": model,
        "spec": asdict(lease.spec),
        "request": asdict(lease.request),
    }


def _format(lease: Lease) -> str:
    """The model's format where its suffix says it."""
    try:
        chosen = backend(lease.spec.backend)
    except KeyError:
        return ""
    if len(chosen.formats) == len(chosen.suffixes):
        by_suffix = dict(zip(chosen.suffixes, chosen.formats, strict=True))
        return by_suffix.get(Path(lease.request.model.name).suffix.lower(), "")
    return chosen.formats[0] if len(chosen.formats) == 1 else ""


@dataclass(frozen=True)
class Facts:
    """Where and when a task ran. name, agent: the agent's name and id. version, python: of the runtime."""

    name: str
    agent: str
    here: Capabilities
    version: str
    python: str
    started_ns: int


def env(lease: Lease, facts: Facts, effective: Mapping[str, Any]) -> dict[str, Any]:
    """Where it ran. effective: what the runtime made of the spec."""
    here = facts.here
    return {
        "agent": facts.name,
        "agent_id": facts.agent,
        "platform": here.platform,
        "machine": here.machine,
        "system": here.system,
        "hostname": here.hostname,
        "cpu": here.cpu,
        "cores": here.cores,
        "gpus": [asdict(gpu) for gpu in here.gpus],
        "python": facts.python,
        "backend": lease.spec.backend,
        "version": facts.version,
        "device": lease.spec.device,
        "effective": dict(effective),
        "sandbox": here.sandbox,
        "visualprof": here.version,
    }


def status(
    outcome: Outcome, warnings: list[str], times: Mapping[str, int | None], profiles: list[Any]
) -> dict[str, Any]:
    """How it ended. times: started_ns, finished_ns, load_ns."""
    return {"schema": JOB_SCHEMA, **outcome, "warnings": warnings, **times, "profiles": profiles}


def profile(said: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `profiles`; a child may say anything."""
    values = {key: plain(said.get(key)) for key in PROFILE_KEYS}
    return {key: value if isinstance(value, (str, int)) else None for key, value in values.items()}


def write(folder: Path, name: str, body: object) -> None:
    """Writes a file of JSON whole, whatever the child left under that name."""
    part = folder / f"{name}.part"
    clear(part)
    part.write_text(json.dumps(body, indent=1), "utf-8")
    clear(folder / name)
    part.rename(folder / name)
