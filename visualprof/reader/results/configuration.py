"""Digest of a measured configuration: the model, how and where it ran, and its inputs and sizes."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from visualprof.reader.chrome.values import json_object, json_objects, text
from visualprof.reader.results.points import Json

SPEC_FIELDS = ("backend", "precision", "threads", "options")
REQUEST_FIELDS = ("inputs", "dims", "sweep", "pin", "case")  # not how long is measured, and for whom
MEASURE_FIELDS = ("load",)
STAGE_FIELDS = {"advise": ("objective", "max_error", "only", "data"), "search": ("objective", "over", "where")}


def configuration_digest(job: Json, env: Json) -> str:
    """Return a digest that is equal for two results if they measured the same thing in the same way on one machine.

    Names of jobs and run configurations do not count, nor does how long and how often was measured.

    Args:
        job: Content of job.json.
        env: Content of env.json.
    """
    request, spec, model = (json_object(job.get(key)) for key in ("request", "spec", "model"))
    fields: Json = {
        "model": [model.get("sha256") or model.get("name"), json_object(request.get("model")).get("parts")],
        "runtime": [text(env.get("version")) or text(spec.get("version"))],
        "device": text(env.get("device")) or text(spec.get("device")),
        "machine": [env.get("agent"), env.get("cpu"), [gpu.get("name") for gpu in json_objects(env.get("gpus"))]],
        "spec": _values(spec, SPEC_FIELDS),
        "request": _values(request, REQUEST_FIELDS),
        "measure": _values(json_object(request.get("measure")), MEASURE_FIELDS),
        **{name: _values(json_object(request.get(name)), keys) for name, keys in STAGE_FIELDS.items()},
    }
    return sha256(msgspec.json.encode(fields, order="deterministic")).hexdigest()[:16]


def _values(values: Json, keys: tuple[str, ...]) -> list[object]:
    return [values.get(key) for key in keys]
