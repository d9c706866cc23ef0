"""Reports: the folders that measured models leave in the log directory (docs/remote.md), as they are on disk.

The content is anybody's: what has a wrong type counts as unknown, what is cut is left out, and both are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.messages import msg
from visualprof.reader.chrome.values import integer, json_object, json_objects, number, text, texts
from visualprof.reader.results.advice import Advice, advice_of
from visualprof.reader.results.points import Json, Point, read_lines, read_points
from visualprof.reader.results.search import Search, search_of
from visualprof.reader.source import DECODE_ERRORS

if TYPE_CHECKING:
    from visualprof.reader.logdir.scan import LogFile

JOB_SCHEMA = "visualprof.job/1"
PARTS = ("job.json", "env.json", "status.json", "points.jsonl", "latencies.bin", "advice.json", "search.json")
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

    id: what the run in its folder is called. folder: as users see its files.
    precision: that was asked for, "" left to the runtime. effective: what really ran, as the runtime says.
    latencies: path of the file with every run's time, "" without one. price_per_hour: of the machine, None unknown.
    sample: it came with visualprof; nobody here measured it. advice: candidates that were tried, None without any.
    search: settings that were tried.
    """

    id: str
    folder: str
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
    environment: Mapping[str, str]
    effective: Mapping[str, str]
    profiles: tuple[Profile, ...]
    points: tuple[Point, ...]
    warnings: tuple[str, ...]
    latencies: str
    sample: bool
    price_per_hour: float | None = None
    advice: Advice | None = None
    search: Search | None = None

    def point(self, batch: int) -> Point | None:
        """The point of that size."""
        return next((p for p in self.points if p.batch == batch), None)


def folders(files: Iterable[LogFile]) -> dict[str, dict[str, LogFile]]:
    """Folders that hold a result, by their name towards users, with the files that make it one."""
    results: dict[str, dict[str, LogFile]] = {}
    for file in files:
        if file.name in PARTS:
            results.setdefault(file.file.rpartition("/")[0], {})[file.name] = file
    return {name: parts for name, parts in results.items() if "job.json" in parts and "points.jsonl" in parts}


def read_report(folder: str, parts: Mapping[str, LogFile]) -> Report | None:
    """The report of a folder; None when it is no result.

    Args:
        folder: as users see it. parts: its files by name, as `folders` gives them.
    """
    job, env, status = (read_json(parts.get(f"{name}.json")) for name in ("job", "env", "status"))
    if job.get("schema") != JOB_SCHEMA:
        return None
    lines, damaged = read_lines(parts["points.jsonl"])
    report = report_of(folder, job, env, status, lines)
    return replace(
        report,
        finished_ns=report.finished_ns or max(file.version.mtime_ns for file in parts.values()),
        warnings=(*damaged, *report.warnings),
        latencies=parts["latencies.bin"].path if "latencies.bin" in parts else "",
        advice=advice_of(read_json(parts.get("advice.json"))),
        search=search_of(read_json(parts.get("search.json"))),
    )


def report_of(folder: str, job: Json, env: Json, status: Json, lines: Iterable[Json]) -> Report:
    """The report of what a result's files say. folder: as users see it. lines: of points.jsonl."""
    points, wrong = read_points(lines)
    spec, model = json_object(job.get("spec")), json_object(job.get("model"))
    state = text(status.get("state"))
    return Report(
        id=folder or ".",
        folder=folder,
        job=text(job.get("job")),
        name=text(job.get("name")) or text(model.get("name")),
        model=text(model.get("name")),
        model_sha256=text(model.get("sha256")),
        spec=text(spec.get("id")) or folder.rpartition("/")[2],
        backend=text(spec.get("backend")) or text(env.get("backend")),
        version=text(env.get("version")) or text(spec.get("version")),
        device=text(env.get("device")) or text(spec.get("device")),
        precision=text(spec.get("precision")),
        threads=integer(spec.get("threads")) or 0,
        agent=text(env.get("agent")),
        state=state if state in STATES else "failed",
        reason=text(status.get("reason")),
        error=text(status.get("error"))
        or ("" if state in STATES else msg("reader.status_json_cannot_read", "status.json cannot be read")),
        hint=text(status.get("hint")),
        started_ns=integer(status.get("started_ns")) or 0,
        finished_ns=integer(status.get("finished_ns")) or 0,
        environment=_environment(env),
        effective={text(k): text(v) for k, v in json_object(env.get("effective")).items()},
        profiles=tuple(_profile(entry) for entry in json_objects(status.get("profiles")) if text(entry.get("file"))),
        points=points,
        warnings=(*texts(status.get("warnings")), *wrong),
        latencies="",
        price_per_hour=_price(json_object(job.get("request")), env),
        sample=json_object(job.get("request")).get("sample") is True,
    )


def read_latencies(report: Report, point: Point) -> NDArray[np.int64]:
    """(n,) ns of every run in their order, repeat after repeat; of over 8 million only evenly spaced pieces.

    None where they are not kept, or the file is shorter than it should be.
    """
    parts = point.repeats or (point,)
    read = [_latencies(report.latencies, part.latencies, MAX_SAMPLES // len(parts)) for part in parts]
    return np.concatenate(read) if all(len(part) for part in read) else np.zeros(0, np.int64)


def _latencies(file: str, place: tuple[int, int] | None, most: int) -> NDArray[np.int64]:
    nothing = np.zeros(0, np.int64)
    if not file or place is None:
        return nothing
    offset, count = place
    try:
        if offset < 0 or count < 1 or offset + 4 * count > Path(file).stat().st_size:
            return nothing
        kept = np.memmap(file, "<u4", "r", offset, (count,))
        if count <= most:
            return kept.astype(np.int64)
        starts = np.linspace(0, count - PIECE, max(1, most // PIECE)).astype(np.int64)
        return kept[(starts[:, None] + np.arange(PIECE)).ravel()].astype(np.int64)
    except (OSError, ValueError):
        return nothing


def _price(*said: Json) -> float | None:
    """The first of some places that says it: a job's own price is before its machine's."""
    prices = (number(one.get("price_per_hour")) for one in said)
    return next((price for price in prices if price is not None and price >= 0), None)


def _environment(env: Json) -> dict[str, str]:
    """What the machine is, by name."""
    names = ("platform", "machine", "system", "hostname", "cpu", "cores", "python", "sandbox", "visualprof")
    values = {name: text(env.get(name)) for name in names}
    values["gpus"] = ", ".join(text(gpu.get("name")) for gpu in json_objects(env.get("gpus")))
    return {name: value for name, value in values.items() if value}


def _profile(entry: Json) -> Profile:
    batch, runs, start = (integer(entry.get(key)) for key in ("batch", "runs", "start_ns"))
    return Profile(text(entry.get("pass")), text(entry.get("file")), batch, runs, start, text(entry.get("error")))


def read_json(file: LogFile | None) -> Json:
    """The object in a file; empty when there is none, or it is larger than any of ours."""
    if file is None or file.version.size > MAX_JSON:
        return {}
    try:
        return json_object(msgspec.json.decode(Path(file.path).read_bytes()))
    except (OSError, *DECODE_ERRORS):
        return {}
