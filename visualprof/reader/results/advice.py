"""The advice in a report: candidates from `advice.json` (docs/advice.md), in which any value may be missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from visualprof.reader.chrome.values import integer, json_object, json_objects, number, text, texts

Json = dict[str, Any]

SCHEMA = "visualprof.advice/1"
MAX_ROWS = 200
VERDICTS = (
    "faster",
    "equal",
    "slower",
    "undecided",
    "wrong",
    "no effect",
    "failed",
    "not tried",
    "does not apply",
)


@dataclass(frozen=True)
class AdviceRow:
    """A candidate at the judged batch size, or the original model. `None` means unknown or not measured.

    Attributes:
        candidate: Name of the candidate, "original" for the model itself.
        kind: Kind of the candidate.
        verdict: One of `VERDICTS`, "" for the original.
        why: Reason of a failure, or why it was not tried or does not apply.
        passes: Better than the original by the objective.
        front: No other candidate is as fast, as exact and as small at once.
        batch: The judged batch size.
        latency_ns: Latency, with its 95 % interval in `latency_low_ns` and `latency_high_ns`.
        original_ns: Latency of the original in the same rounds.
        ratio: Latency relative to the original's in the same rounds, with its 95 % interval in `ratio_low` and
            `ratio_high`. For the original, relative to a second process of it.
        margin_ratio: Smallest difference from 1 that counts.
        samples_per_s: Throughput.
        ratios: Ratios by batch size.
        error: Largest output difference relative to the original's largest output, on the user's data, else on random
            inputs.
        random_error: Like `error`, on random inputs.
        max_abs_error: Largest absolute output difference.
        cosine_error: 1 - cos of the same output.
        agreed: Rows of a classifier with the same top 1.
        rows: Rows compared for `agreed`.
        agreed_low_ratio: Lower bound of the share of agreement.
        metric: The user's metric.
        size_bytes: Size of the model's files.
        rss_bytes: Resident memory of the process.
        device_bytes: Device memory.
        load_ns: Load time.
        convert_ns: Conversion time.
        backend: The backend.
        version: Version of the backend.
        ran: Settings in effect, as the runtime reports them.
        places: Numbers of operators of each type, by where they ran.
        files: Files of the converted model below the report's folder, the one that a runtime opens first.
        steps: Converters with their options.
        tools: Versions of the converters.
        spec: Run configuration, by the fields of `protocol.Spec`.
    """

    candidate: str
    kind: str = ""
    verdict: str = ""
    why: str = ""
    passes: bool = False
    front: bool = False
    batch: int | None = None
    latency_ns: float | None = None
    latency_low_ns: float | None = None
    latency_high_ns: float | None = None
    original_ns: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    margin_ratio: float | None = None
    samples_per_s: float | None = None
    ratios: Mapping[int, float] | None = None
    error: float | None = None
    random_error: float | None = None
    max_abs_error: float | None = None
    cosine_error: float | None = None
    agreed: int | None = None
    rows: int | None = None
    agreed_low_ratio: float | None = None
    metric: float | None = None
    size_bytes: int | None = None
    rss_bytes: int | None = None
    device_bytes: int | None = None
    load_ns: int | None = None
    convert_ns: int | None = None
    backend: str = ""
    version: str = ""
    ran: str = ""
    places: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    files: tuple[str, ...] = ()
    steps: tuple[tuple[str, Mapping[str, str]], ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict[str, str])
    spec: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Advice:
    """Candidates that were tried for a report's model.

    Attributes:
        objective: The objective by which they were judged.
        max_error: Largest accepted `error`.
        data_rows: Rows of the user's data.
        complete: All candidates were tried.
        rows: The candidates.
    """

    objective: str = ""
    max_error: float | None = None
    data_rows: int | None = None
    complete: bool = False
    rows: tuple[AdviceRow, ...] = ()


def parse_advice(body: Json) -> Advice | None:
    """Return the advice from the content of `advice.json`, or `None` if the schema differs."""
    if body.get("schema") != SCHEMA:
        return None
    judged = integer(body.get("judged"))
    rows = [_parse_row(row, judged) for row in json_objects(body.get("rows"))[:MAX_ROWS] if text(row.get("name"))]
    head = text(body.get("objective")), number(body.get("max_error")), integer(body.get("data_rows"))
    return Advice(*head, body.get("complete") is True, tuple(rows))


def _parse_row(row: Json, judged: int | None) -> AdviceRow:
    points = {
        batch: entry for entry in json_objects(row.get("points")) if (batch := integer(entry.get("batch"))) is not None
    }
    point = points.get(judged if judged is not None else -1, {})
    latency, ratio = json_object(point.get("latency_ns")), json_object(point.get("ratio"))
    random_error_info = json_object(row.get("random"))
    error_info = json_object(row.get("data")) or random_error_info
    top1, verdict, spec = json_object(error_info.get("top1")), text(row.get("verdict")), json_object(row.get("spec"))
    return AdviceRow(
        candidate=text(row.get("name")),
        kind=text(row.get("kind")),
        verdict=verdict if verdict in VERDICTS else "",
        why=text(row.get("why")),
        passes=row.get("passes") is True,
        front=row.get("front") is True,
        batch=judged if point else None,
        latency_ns=number(latency.get("value")),
        latency_low_ns=number(latency.get("low")),
        latency_high_ns=number(latency.get("high")),
        original_ns=number(json_object(point.get("original_ns")).get("value")),
        ratio=number(ratio.get("value")),
        ratio_low=number(ratio.get("low")),
        ratio_high=number(ratio.get("high")),
        margin_ratio=number(point.get("margin")),
        samples_per_s=number(point.get("samples_per_s")),
        ratios=dict(_parse_ratios(points)),
        error=number(error_info.get("relative")),
        random_error=number(random_error_info.get("relative")),
        max_abs_error=number(error_info.get("max_abs")),
        cosine_error=number(error_info.get("cosine")),
        agreed=integer(top1.get("agreed")),
        rows=integer(top1.get("rows")),
        agreed_low_ratio=number(top1.get("low")),
        metric=number(row.get("metric")),
        **{
            name: integer(row.get(name))
            for name in ("size_bytes", "rss_bytes", "device_bytes", "load_ns", "convert_ns")
        },
        backend=text(spec.get("backend")),
        version=text(row.get("version")),
        ran=", ".join(f"{name} {text(value)}" for name, value in json_object(row.get("effective")).items()),
        places={
            location: counts
            for location, kinds in json_object(row.get("places")).items()
            if (counts := _parse_counts(kinds))
        },
        files=tuple(texts(row.get("files"))),
        steps=tuple(
            (text(entry.get("converter")), _parse_texts(entry.get("options")))
            for entry in json_objects(row.get("steps"))
        ),
        tools=_parse_texts(row.get("tools")),
        spec=_parse_spec(spec),
    )


def _parse_texts(value: object) -> dict[str, str]:
    return {name: text(item) for name, item in json_object(value).items()}


def _parse_counts(kinds: object) -> dict[str, int]:
    counts = {name: integer(count) for name, count in json_object(kinds).items()}
    return {name: count for name, count in counts.items() if count}


def _parse_spec(spec: Json) -> Json:
    names = ("backend", "version", "platform", "device", "precision")
    texts_by_name = {name: text(spec.get(name)) for name in names}
    return {**texts_by_name, "threads": integer(spec.get("threads")) or 0, "options": _parse_texts(spec.get("options"))}


def _parse_ratios(points: Mapping[int, Json]) -> Iterator[tuple[int, float]]:
    for batch, point in points.items():
        value = number(json_object(point.get("ratio")).get("value"))
        if value is not None:
            yield batch, value
