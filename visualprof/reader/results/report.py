"""Reports: folders of measured models in the log directory (docs/result-folder.md), as stored on disk.

The content is untrusted. A value of a wrong type counts as unknown, a truncated part is left out, and both cause
warnings.
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
from visualprof.reader.chrome.values import integer, json_list, json_object, json_objects, number, text, texts
from visualprof.reader.results.advice import Advice, parse_advice
from visualprof.reader.results.benchmark_run import BenchmarkRun
from visualprof.reader.results.configuration import configuration_digest
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
    """A profile pass.

    Attributes:
        name: Name of the pass.
        file: Path below the report's folder.
        batch: Size of the swept dimension, `None` if unknown.
        runs: Number of profiled runs.
        start_ns: Unix time of the start.
        error: What went wrong.
    """

    name: str
    file: str
    batch: int | None = None
    runs: int | None = None
    start_ns: int | None = None
    error: str = ""


@dataclass(frozen=True)
class Report:
    """A model measured with one run configuration.

    Attributes:
        id: Id of the run in its folder.
        folder: The folder, as users see it.
        job: Id of the job.
        name: Name of the job, else of the model.
        model: Name of the model.
        model_sha256: Hash of the model.
        spec: Id of the run configuration.
        backend: The backend.
        version: Version of the backend.
        device: The device.
        precision: Requested precision, "" if left to the runtime.
        threads: Requested threads, 0 if left to the runtime.
        agent: The agent.
        state: One of `STATES`.
        reason: Reason of a failure.
        error: What went wrong.
        hint: What to do about it.
        started_ns: Unix time of the start.
        finished_ns: Unix time of the end.
        environment: The machine.
        effective: Settings in effect, as the runtime reports them.
        profiles: Profile passes.
        points: Measured points.
        warnings: Warnings.
        not_measured: Sizes of the sweep that failed while others were measured.
        latencies: Path of the file with the latency of every run, "" without one.
        sample: The report is a sample that came with visualprof.
        configuration: Digest that is equal for reports of the same model, runtime, options, sizes and machine.
        price_per_hour: Price of the machine, `None` if unknown.
        advice: Candidates that were tried, `None` without any.
        search: Settings that were tried, `None` without any.
        serving: Runs of a load generator against a server, by load.
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
    configuration: str
    not_measured: tuple[int, ...] = ()
    price_per_hour: float | None = None
    advice: Advice | None = None
    search: Search | None = None
    serving: tuple[BenchmarkRun, ...] = ()

    def point(self, batch: int) -> Point | None:
        """Return the point of a size, or `None`."""
        return next((p for p in self.points if p.batch == batch), None)


def find_result_folders(files: Iterable[LogFile]) -> dict[str, dict[str, LogFile]]:
    """Return the folders that hold a result, by their name for users, with their result files."""
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
    """Return the report of a folder, or `None` if it is not a result.

    Args:
        folder: The folder, as users see it.
        files: Its files by name, from `find_result_folders`.
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
    """Build a report from the content of a result's files.

    Args:
        folder: The folder, as users see it.
        job: Content of job.json.
        env: Content of env.json.
        status: Content of status.json.
        lines: Lines of points.jsonl.
    """
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
        configuration=configuration_digest(job, env),
        not_measured=tuple(size for size in map(integer, json_list(status.get("not_measured"))) if size is not None),
    )


def read_latencies(report: Report, point: Point) -> NDArray[np.int64]:
    """Return (n,) latencies in ns in order, repeat after repeat; of over 8 million only evenly spaced pieces.

    The result is empty if the latencies are not stored, or the file is too short.
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
    """Return the first valid price: a job's own price takes precedence over its machine's."""
    prices = (number(source.get("price_per_hour")) for source in sources)
    return next((price for price in prices if price is not None and price >= 0), None)


def _describe_environment(env: Json) -> dict[str, str]:
    """Return facts about the machine, by name."""
    names = ("platform", "machine", "system", "hostname", "cpu", "cores", "python", "sandbox", "visualprof")
    values = {name: text(env.get(name)) for name in names}
    values["gpus"] = ", ".join(text(gpu.get("name")) for gpu in json_objects(env.get("gpus")))
    return {name: value for name, value in values.items() if value}


def _parse_profile(entry: Json) -> Profile:
    batch, runs, start = (integer(entry.get(key)) for key in ("batch", "runs", "start_ns"))
    return Profile(text(entry.get("pass")), text(entry.get("file")), batch, runs, start, text(entry.get("error")))


def read_json(file: LogFile | None) -> Json:
    """Return the object in a file, empty if the file is missing or implausibly large."""
    if file is None or file.version.size > MAX_JSON_BYTES:
        return {}
    try:
        return json_object(msgspec.json.decode(Path(file.path).read_bytes()))
    except (OSError, *DECODE_ERRORS):
        return {}
