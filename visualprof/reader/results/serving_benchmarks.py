"""Results of load generators for inference servers, read as reports.

vLLM (`vllm bench serve`) and SGLang (`bench_serving`) write one flat object per run, SGLang one per line, with
latencies such as `p99_ttft_ms`. GenAI-Perf and AIPerf write one object of metrics, each with a unit and percentiles.
The content is untrusted: a value of a wrong type, or with an unknown unit, counts as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from visualprof.messages import msg
from visualprof.reader.chrome.recovery import repair
from visualprof.reader.chrome.values import Json, first_items, integer, json_object, number, text
from visualprof.reader.foreign_files import is_serving_result
from visualprof.reader.results.benchmark_run import BenchmarkRun, Latency
from visualprof.reader.results.report import RESULT_FILES, Report
from visualprof.reader.source import DECODE_ERRORS

if TYPE_CHECKING:
    from visualprof.reader.logdir.scan import LogFile

SUFFIXES = (".json", ".jsonl")
HEAD_BYTES = 1 << 16
MAX_BYTES = 64 << 20  # with `--save-detailed`, vLLM writes a number per token
MAX_RUNS = 10_000
PERCENTILES = ("p50", "p90", "p95", "p99")
UNIT_NS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "sec": 1e9}
# Latencies by the keys of the tools. The inter-token latency of GenAI-Perf and AIPerf is a mean per request.
FLAT_METRICS = {"ttft": ("ttft",), "tpot": ("tpot",), "itl": ("itl",), "request": ("e2el", "e2e_latency")}
NESTED_METRICS = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "itl": "inter_chunk_latency",
    "request": "request_latency",
}
_NOT_JSON = re.compile(rb"\b(?:NaN|Infinity)\b")


@dataclass(frozen=True)
class ServingFile:
    """A result file.

    Attributes:
        folder: Its folder, as users see it.
        finished_ns: Unix time of its last change.
        runs: The runs in it.
        damaged: Number of lines that cannot be read.
    """

    folder: str
    finished_ns: int
    runs: tuple[BenchmarkRun, ...]
    damaged: int = 0


def may_be_serving_file(name: str) -> bool:
    """Return whether a file may be the result of a load generator, by its name."""
    return name.lower().endswith(SUFFIXES) and name not in RESULT_FILES


def read_serving_file(file: LogFile) -> ServingFile | None:
    """Return the runs in a file, or `None` if it is not the result of a load generator, or cannot be read."""
    if not may_be_serving_file(file.name) or file.version.size > MAX_BYTES:
        return None
    try:
        with Path(file.path).open("rb") as stream:
            head = stream.read(HEAD_BYTES)
            if not is_serving_result(head):
                return None
            data = head + stream.read(MAX_BYTES)
    except OSError:
        return None
    runs, damaged = _parse(data)
    if not runs:
        return None
    return ServingFile(file.file.rpartition("/")[0], file.version.mtime_ns, tuple(runs), damaged)


def serving_reports(files: Iterable[ServingFile]) -> list[Report]:
    """Return one report per folder, tool, server and model: a sweep over loads is one report."""
    groups: dict[tuple[str, str, str, str], list[tuple[ServingFile, BenchmarkRun]]] = {}
    for file in files:
        for run in file.runs:
            groups.setdefault((file.folder, run.tool, run.backend, run.model), []).append((file, run))
    return [_report(*key, members) for key, members in groups.items()]


def _report(
    folder: str, tool: str, backend: str, model: str, members: list[tuple[ServingFile, BenchmarkRun]]
) -> Report:
    spec = " · ".join(part for part in (tool, backend) if part) or "load generator"
    name = f"{spec} {model}".strip()
    report_id = f"{folder}/{name}" if folder else name
    damaged = sum({id(file): file.damaged for file, _ in members}.values())
    warning = msg("reader.serving_lines_left_out", f"{damaged:,} lines are not results and were left out")
    return Report(
        id=report_id,
        folder=folder,
        job="",
        name=model or spec,
        model=model,
        model_sha256="",
        spec=spec,
        backend=backend or tool,
        version="",
        device="",
        precision="",
        threads=0,
        agent="",
        state="succeeded",
        reason="",
        error="",
        hint="",
        started_ns=0,
        finished_ns=max(file.finished_ns for file, _ in members),
        environment={},
        effective={},
        profiles=(),
        points=(),
        warnings=(warning,) if damaged else (),
        latencies="",
        sample=False,
        configuration=report_id,
        serving=tuple(sorted((run for _, run in members), key=_load_key)),
    )


def _load_key(run: BenchmarkRun) -> tuple[float, float, float]:
    return run.concurrency or 0, run.offered_per_s or 0.0, run.achieved_per_s or 0.0


def _parse(data: bytes) -> tuple[list[BenchmarkRun], int]:
    """Return the runs in a file of one object, or of one object per line, and the number of other lines."""
    whole = _decode(data)
    documents = [whole] if whole is not None else [_decode(line) for line in _lines(data)]
    runs = [run for document in documents if document and (run := _parse_run(document))]
    return runs, len(documents) - len(runs)


def _lines(data: bytes) -> Iterator[bytes]:
    lines = (line for line in data.split(b"\n") if line.strip())
    return (line for line, _ in zip(lines, range(MAX_RUNS), strict=False))


def _decode(data: bytes) -> Json | None:
    """Return a JSON object, `None` for anything else. Python writes NaN and Infinity, which are not JSON."""
    try:
        return json_object(msgspec.json.decode(repair(data) if _NOT_JSON.search(data) else data))
    except DECODE_ERRORS:
        return None


def _parse_run(document: Json) -> BenchmarkRun | None:
    throughput = document.get("request_throughput")
    if number(throughput) is not None:
        return _parse_flat(document)
    return _parse_nested(document) if number(json_object(throughput).get("avg")) is not None else None


def _parse_flat(document: Json) -> BenchmarkRun:
    """Return a run of vLLM or SGLang. SGLang names no model, unless it stores its server's settings."""
    server = json_object(document.get("server_info"))
    tool = "vLLM bench" if "model_id" in document else "SGLang bench" if "mean_e2e_latency_ms" in document else ""
    completed, prompts = integer(document.get("completed")), integer(document.get("num_prompts"))
    failed = integer(document.get("failed"))
    if failed is None and completed is not None and prompts is not None:
        failed = max(prompts - completed, 0)
    total = number(document.get("total_token_throughput"))
    return BenchmarkRun(
        tool=tool,
        backend=text(document.get("backend")) or text(document.get("endpoint_type")),
        model=text(document.get("model_id")) or text(document.get("model")) or text(server.get("model_path")),
        concurrency=integer(document.get("max_concurrency")),
        offered_per_s=number(document.get("request_rate")),
        n=completed,
        failed=failed,
        duration_ns=_ns(document.get("duration"), 1e9),
        achieved_per_s=number(document.get("request_throughput")),
        output_tokens_per_s=number(document.get("output_throughput")),
        total_tokens_per_s=number(document.get("total_throughput")) if total is None else total,
        input_tokens=integer(document.get("total_input_tokens")),
        output_tokens=integer(document.get("total_output_tokens")),
        **{metric: _flat_latency(document, keys) for metric, keys in FLAT_METRICS.items()},
    )


def _flat_latency(document: Json, keys: tuple[str, ...]) -> Latency:
    """Return a latency in ms: `mean_KEY_ms`, `median_KEY_ms`, `p99_KEY_ms`."""
    key = next((key for key in keys if f"mean_{key}_ms" in document), keys[0])
    values = {f"{percentile}_ns": _ns(document.get(f"{percentile}_{key}_ms"), 1e6) for percentile in PERCENTILES}
    if values["p50_ns"] is None:
        values["p50_ns"] = _ns(document.get(f"median_{key}_ms"), 1e6)
    return Latency(mean_ns=_ns(document.get(f"mean_{key}_ms"), 1e6), **values)


def _parse_nested(document: Json) -> BenchmarkRun:
    """Return a run of GenAI-Perf or AIPerf."""
    config = json_object(document.get("input_config"))
    load, endpoint = json_object(config.get("loadgen")), json_object(config.get("endpoint"))
    stimulus = json_object(json_object(config.get("perf_analyzer")).get("stimulus"))
    phase = json_object(json_object(config.get("phases")).get("profiling"))
    models = next((m for m in (config.get("model"), config.get("model_names"), endpoint.get("model_names")) if m), "")
    loads = (config, load, stimulus, phase)
    n, failed = (_average(document, key) for key in ("request_count", "error_request_count"))
    output_tokens = _average(document, "total_output_tokens")
    return BenchmarkRun(
        tool="AIPerf" if "aiperf_version" in document or load else "GenAI-Perf",
        backend=text(config.get("backend")) or text(endpoint.get("backend")),
        model=", ".join(filter(None, map(text, first_items(models)))) or text(models),
        concurrency=next((value for part in loads if (value := integer(part.get("concurrency")))), None),
        offered_per_s=next((value for part in loads if (value := number(part.get("request_rate")))), None),
        n=integer(n),
        failed=integer(failed),
        duration_ns=_metric_ns(document, "benchmark_duration", "avg"),
        achieved_per_s=_average(document, "request_throughput"),
        output_tokens_per_s=_average(document, "output_token_throughput"),
        total_tokens_per_s=_average(document, "total_token_throughput"),
        input_tokens=integer(_average(document, "total_isl")),
        output_tokens=integer(_average(document, "total_osl") if output_tokens is None else output_tokens),
        **{
            metric: Latency(
                mean_ns=_metric_ns(document, key, "avg"),
                **{f"{percentile}_ns": _metric_ns(document, key, percentile) for percentile in PERCENTILES},
            )
            for metric, key in NESTED_METRICS.items()
        },
    )


def _average(document: Json, key: str) -> float | None:
    return number(json_object(document.get(key)).get("avg"))


def _metric_ns(document: Json, key: str, statistic: str) -> int | None:
    """Return a statistic of a metric in ns, `None` if its unit is unknown."""
    metric = json_object(document.get(key))
    unit_ns = UNIT_NS.get(text(metric.get("unit")).lower())
    return None if unit_ns is None else _ns(metric.get(statistic), unit_ns)


def _ns(value: Any, unit_ns: float) -> int | None:
    converted = number(value)
    return None if converted is None or converted < 0 else round(converted * unit_ns)
