"""Reports: the folders that measured models leave in the log directory (docs/remote.md), as they are on disk.

The content is anybody's: what has a wrong type counts as unknown, what is cut is left out, and both are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.chrome.decode import json_object, json_objects
from visualprof.reader.chrome.values import text, texts, whole
from visualprof.reader.logdir.scan import Found
from visualprof.reader.results.points import Json, Point, read_lines, read_points

JOB_SCHEMA = "visualprof.job/1"
PROTOTYPE = 1
PARTS = ("job.json", "env.json", "status.json", "points.jsonl", "latencies.bin")
MAX_JSON = 4 << 20
PIECE = 1 << 16
MAX_SAMPLES = 1 << 23
STATES = ("initiated", "waiting", "running", "succeeded", "failed", "cancelled")


@dataclass(frozen=True)
class Profile:
    """A profile pass. file: below the report's folder. batch: size of the swept dimension, None unknown."""

    name: str
    file: str
    batch: int | None = None
    runs: int | None = None
    start_ns: int | None = None
    error: str = ""


@dataclass(frozen=True)
class Report:
    """A model measured in one way.

    id: folder as the run in it is called, with `#spec` where a folder holds several. folder: as users see its files.
    precision: that was asked for, "" left to the runtime. effective: what really ran, as the runtime says.
    phase: what the monitor's steps are called before the batch, "" in the current layout.
    """

    id: str
    folder: str
    run: str
    job: str
    name: str
    model: str
    model_sha256: str
    spec: str
    backend: str
    version: str
    device: str
    precision: str
    threads: int
    agent: str
    state: str
    reason: str
    error: str
    hint: str
    started_ns: int
    finished_ns: int
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    effective: Mapping[str, str] = field(default_factory=dict[str, str])
    profiles: tuple[Profile, ...] = ()
    points: tuple[Point, ...] = ()
    warnings: tuple[str, ...] = ()
    latencies: str = ""
    phase: str = ""

    def point(self, batch: int) -> Point | None:
        """The point of that size."""
        return next((p for p in self.points if p.batch == batch), None)


def folders(files: Iterable[Found]) -> dict[str, dict[str, Found]]:
    """Folders that hold a result, by their name towards users, with the files that make it one."""
    found: dict[str, dict[str, Found]] = {}
    for each in files:
        if each.name in PARTS:
            found.setdefault(each.file.rpartition("/")[0], {})[each.name] = each
    return {name: parts for name, parts in found.items() if "job.json" in parts and "points.jsonl" in parts}


def read_reports(folder: str, parts: Mapping[str, Found]) -> list[Report]:
    """The reports of a folder: one, several of the prototype's layout, or none when it is no result.

    Args:
        folder: as users see it. parts: its files by name, as `folders` gives them.
    """
    job = read_json(parts["job.json"])
    schema = job.get("schema")
    if schema != JOB_SCHEMA and not (isinstance(schema, int) and schema == PROTOTYPE):
        return []
    told = {name: read_json(parts[f"{name}.json"]) if f"{name}.json" in parts else {} for name in ("env", "status")}
    lines, warnings = read_lines(parts["points.jsonl"])
    raw = parts["latencies.bin"].path if "latencies.bin" in parts else ""
    if schema == PROTOTYPE:
        from visualprof.reader.results.prototype import prototype_reports

        reports = prototype_reports(folder, job, told["env"], told["status"], lines)
    else:
        reports = [_report(folder, job, told["env"], told["status"], lines)]
    newest = max(found.version.mtime_ns for found in parts.values())
    run = folder or "."
    return [
        replace(
            r, run=run, id=run + r.id, latencies=raw, finished_ns=r.finished_ns or newest,
            warnings=(*warnings, *r.warnings),
        )
        for r in reports
    ]  # fmt: skip


def read_latencies(report: Report, point: Point) -> NDArray[np.int64]:
    """(n,) ns of every run in their order, of over 8 million only evenly spaced pieces.

    None where they are not kept, or the file is shorter than it should be.
    """
    nothing = np.zeros(0, np.int64)
    if not report.latencies or point.latencies is None:
        return nothing
    offset, count = point.latencies
    path = Path(report.latencies)
    try:
        if offset < 0 or count < 1 or offset + 4 * count > path.stat().st_size:
            return nothing
        kept = np.memmap(path, "<u4", "r", offset, (count,))
        if count <= MAX_SAMPLES:
            return kept.astype(np.int64)
        starts = np.linspace(0, count - PIECE, MAX_SAMPLES // PIECE).astype(np.int64)
        return kept[(starts[:, None] + np.arange(PIECE)).ravel()].astype(np.int64)
    except (OSError, ValueError):
        return nothing


def _report(folder: str, job: Json, env: Json, status: Json, lines: list[Json]) -> Report:
    spec, model = json_object(job.get("spec")), json_object(job.get("model"))
    points, warnings = read_points(lines)
    state = text(status.get("state"))
    return Report(
        id="",
        folder=folder,
        run="",
        job=text(job.get("job")),
        name=text(job.get("name")) or text(model.get("name")),
        model=text(model.get("name")),
        model_sha256=text(model.get("sha256")),
        spec=text(spec.get("id")) or folder.rpartition("/")[2],
        backend=text(spec.get("backend")) or text(env.get("backend")),
        version=text(env.get("version")) or text(spec.get("version")),
        device=text(env.get("device")) or text(spec.get("device")),
        precision=text(spec.get("precision")),
        threads=whole(spec.get("threads")) or 0,
        agent=text(env.get("agent")),
        state=state if state in STATES else "failed",
        reason=text(status.get("reason")),
        error=text(status.get("error")) or ("" if state in STATES else "status.json cannot be read"),
        hint=text(status.get("hint")),
        started_ns=whole(status.get("started_ns")) or 0,
        finished_ns=whole(status.get("finished_ns")) or 0,
        environment=_environment(env),
        effective={text(k): text(v) for k, v in json_object(env.get("effective")).items()},
        profiles=tuple(_profile(each) for each in json_objects(status.get("profiles")) if text(each.get("file"))),
        points=points,
        warnings=(*texts(status.get("warnings")), *warnings),
    )


def _environment(env: Json) -> dict[str, str]:
    """What is told of the machine."""
    names = ("platform", "machine", "system", "hostname", "cpu", "cores", "python", "sandbox", "visualprof")
    found = {name: text(env.get(name)) for name in names}
    found["gpus"] = ", ".join(text(each.get("name")) for each in json_objects(env.get("gpus")))
    return {name: value for name, value in found.items() if value}


def _profile(told: Json) -> Profile:
    return Profile(
        text(told.get("pass")),
        text(told.get("file")),
        whole(told.get("batch")),
        whole(told.get("runs")),
        whole(told.get("start_ns")),
        text(told.get("error")),
    )


def read_json(found: Found) -> Json:
    """The object in a file; empty when there is none, or it is larger than any of ours."""
    try:
        if found.version.size > MAX_JSON:
            return {}
        return json_object(msgspec.json.decode(Path(found.path).read_bytes()))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
