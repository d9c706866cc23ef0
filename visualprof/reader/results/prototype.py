"""Reports in the layout of the first prototype: several specs in one folder, times in ms, no epochs."""

from __future__ import annotations

from visualprof.reader.chrome.decode import json_object, json_objects
from visualprof.reader.chrome.values import items, number, text, texts, whole
from visualprof.reader.results.points import Json, read_points
from visualprof.reader.results.report import Profile, Report

BUSY_SWITCHES_PER_S = 20.0  # docs/remote.md#measuring; the prototype did not record pressure
_MS = ("load", "first", "mean", "min", "max", "p50", "p90", "p95", "p99")


def prototype_reports(folder: str, job: Json, env: Json, status: Json, lines: list[Json]) -> list[Report]:
    """One report for each spec that has points."""
    by_spec: dict[str, list[Json]] = {}
    for line in lines:
        by_spec.setdefault(text(line.get("spec")), []).append(_converted(line))
    specs = {text(each.get("id")): each for each in json_objects(job.get("specs"))}
    return [
        _report(folder, job, env, text(status.get("state")), spec, specs.get(spec, {}), mine)
        for spec, mine in by_spec.items()
        if spec
    ]


def _report(folder: str, job: Json, env: Json, state: str, name: str, spec: Json, lines: list[Json]) -> Report:
    model, options = json_object(job.get("model")), json_object(spec.get("options"))
    told = json_object(json_object(env.get("specs")).get(name))
    backend = text(spec.get("backend"))
    points, warnings = read_points(lines)
    host = {key: text(value) for key, value in json_object(env.get("host")).items()}
    return Report(
        id=f"#{name}",
        folder=folder,
        run="",
        job=text(job.get("id")),
        name=text(job.get("name")),
        model=text(model.get("path")),
        model_sha256=text(model.get("sha256")),
        spec=name,
        backend=backend,
        version=text(told.get(backend)),
        device="cpu",
        precision=text(options.get("precision")),
        threads=whole(options.get("threads")) or 0,
        agent="",
        state=state if state in ("succeeded", "failed", "cancelled") else "failed",
        reason="",
        error="",
        hint="",
        started_ns=0,
        finished_ns=0,
        environment=host,
        effective={key: ", ".join(texts(v)) or text(v) for key, v in json_object(told.get("effective")).items()},
        profiles=tuple(Profile("timeline", f"profiles/{name}/{file}") for file in texts(told.get("profiles"))),
        points=points,
        warnings=tuple(warnings),
        phase=f"{name}:b",
    )


def _converted(line: Json) -> Json:
    """A point in the current words."""
    ns = {f"{key}_ns": _scaled(line.get(f"{key}_ms"), 1e6) for key in _MS}
    duration = number(line.get("duration_s"))
    switches = whole(line.get("involuntary_ctx"))
    busy = switches / duration > BUSY_SWITCHES_PER_S if switches is not None and duration else None
    return {
        **line, **ns,
        "duration_ns": _scaled(duration, 1e9),
        "window_p50_ns": [_scaled(v, 1e6) for v in items(line.get("thirds_p50_ms"))],
        "involuntary_switches": switches,
        "host_busy": busy,
    }  # fmt: skip


def _scaled(value: object, factor: float) -> int | None:
    known = number(value)
    return None if known is None else round(known * factor)
