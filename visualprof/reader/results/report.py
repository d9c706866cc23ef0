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
from visualprof.reader.results.advice import Advice, parse_advice
from visualprof.reader.results.points import Json, Point, parse_points, read_lines
from visualprof.reader.results.search import Search, parse_search
from visualprof.reader.source import DECODE_ERRORS

if TYPE_CHECKING:
    from visualprof.reader.logdir.scan import LogFile

JOB_SCHEMA = "visualprof.job/1"
RESULT_FILES = ("job.json", "env.json", "status.json", "points.jsonl", "latencies.bin", "advice.json", "search.json")
MAX_JSON_BYTES = 4 << 20
LATENCIES_PER_PIECE = 1 << 16
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


def find_result_folders(files: Iterable[LogFile]) -> dict[str, dict[str, LogFile]]:
    """Folders that hold a result, by their name towards users, with the files that make it one."""
    results: dict[str, dict[str, LogFile]] = {}
    for file in files:
        if file.name in RESULT_FILES:
            results.setdefault(file.file.rpartition("/")[0], {})[file.name] = file
    return {
        name: result_files
        for name, result_files in results.items()
        if "job.json" in result_files and "points.jsonl" in result_files
    }


def read_report(folder: str, files: Mapping[str, LogFile]) -> Report | None:
    """The report of a folder; None when it is no result.

    Args:
        folder: as users see it. parts: its files by name, as `find_result_folders` gives them.
    """
    job, env, status = (read_json(files.get(f"{name}.json")) for name in ("job", "env", "status"))
    if job.get("schema") != JOB_SCHEMA:
        return None
    lines, line_warnings = read_lines(files["points.jsonl"])
    report = build_report(folder, job, env, status, lines)
    return replace(
        report,
        finished_ns=report.finished_ns or max(file.version.mtime_ns for file in files.values()),
        warnings=(*line_warnings, *report.warnings),
        latencies=files["latencies.bin"].path if "latencies.bin" in files else "",
        advice=parse_advice(read_json(files.get("advice.json"))),
        search=parse_search(read_json(files.get("search.json"))),
    )


def build_report(folder: str, job: Json, env: Json, status: Json, lines: Iterable[Json]) -> Report:
    """The report of what a result's files say. folder: as users see it. lines: of points.jsonl."""
    points, point_warnings = parse_points(lines)
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
        environment=_describe_environment(env),
        effective={text(k): text(v) for k, v in json_object(env.get("effective")).items()},
        profiles=tuple(
            _parse_profile(entry) for entry in json_objects(status.get("profiles")) if text(entry.get("file"))
        ),
        points=points,
        warnings=(*texts(status.get("warnings")), *point_warnings),
        latencies="",
        price_per_hour=_first_price(json_object(job.get("request")), env),
        sample=json_object(job.get("request")).get("sample") is True,
    )


def read_latencies(report: Report, point: Point) -> NDArray[np.int64]:
    """(n,) ns of every run in their order, repeat after repeat; of over 8 million only evenly spaced pieces.

    None where they are not kept, or the file is shorter than it should be.
    """
    repeats = point.repeats or (point,)
    latencies = [_read_latencies(report.latencies, repeat.latencies, MAX_SAMPLES // len(repeats)) for repeat in repeats]
    return np.concatenate(latencies) if all(len(repeat) for repeat in latencies) else np.zeros(0, np.int64)


def _read_latencies(file: str, location: tuple[int, int] | None, limit: int) -> NDArray[np.int64]:
    nothing = np.zeros(0, np.int64)
    if not file or location is None:
        return nothing
    offset, count = location
    try:
        if offset < 0 or count < 1 or offset + 4 * count > Path(file).stat().st_size:
            return nothing
        stored = np.memmap(file, "<u4", "r", offset, (count,))
        if count <= limit:
            return stored.astype(np.int64)
        starts = np.linspace(0, count - LATENCIES_PER_PIECE, max(1, limit // LATENCIES_PER_PIECE)).astype(np.int64)
        return stored[(starts[:, None] + np.arange(LATENCIES_PER_PIECE)).ravel()].astype(np.int64)
    except (OSError, ValueError):
        return nothing


def _first_price(*sources: Json) -> float | None:
    """The first of some places that says it: a job's own price is before its machine's."""
    prices = (number(source.get("price_per_hour")) for source in sources)
    return next((price for price in prices if price is not None and price >= 0), None)


def _describe_environment(env: Json) -> dict[str, str]:
    """What the machine is, by name."""
    names = ("platform", "machine", "system", "hostname", "cpu", "cores", "python", "sandbox", "visualprof")
    values = {name: text(env.get(name)) for name in names}
    values["gpus"] = ", ".join(text(gpu.get("name")) for gpu in json_objects(env.get("gpus")))
    return {name: value for name, value in values.items() if value}


def _parse_profile(entry: Json) -> Profile:
    batch, runs, start = (integer(entry.get(key)) for key in ("batch", "runs", "start_ns"))
    return Profile(text(entry.get("pass")), text(entry.get("file")), batch, runs, start, text(entry.get("error")))


def read_json(file: LogFile | None) -> Json:
    """The object in a file; empty when there is none, or it is larger than any of ours."""
    if file is None or file.version.size > MAX_JSON_BYTES:
        return {}
    try:
        return json_object(msgspec.json.decode(Path(file.path).read_bytes()))
    except (OSError, *DECODE_ERRORS):
        return {}
