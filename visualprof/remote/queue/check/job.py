"""Validation of a job: all errors are returned at once, each with its field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from visualprof.messages import msg
from visualprof.remote.protocol import Intervals, ModelRef, Request
from visualprof.remote.queue.check import machines, shapes
from visualprof.remote.queue.check.advise import advise_errors
from visualprof.remote.queue.check.inspect import InspectedArray, InspectedModel, inspection_from_json
from visualprof.remote.queue.check.limits import limit_errors
from visualprof.remote.queue.check.request_json import FieldError, InvalidRequest, parse_request
from visualprof.remote.queue.check.rows import row_errors
from visualprof.remote.queue.check.search import search_errors
from visualprof.remote.queue.store.records import Agent

__all__ = ["FieldError", "InvalidRequest", "check_request", "parse_request", "point_count"]

Findings = tuple[list[FieldError], list[FieldError]]  # errors, warnings


class JobContext(Protocol):
    """Facts about files and agents, from the server."""

    def inspection(self, sha256: str) -> dict[str, Any] | None:
        """Return the result of a file's inspection; None if the file is missing."""
        ...

    def agents(self) -> Sequence[Agent]:
        """Return all registered agents."""
        ...

    @property
    def urgent(self) -> bool:
        """Whether the user may submit jobs of high priority."""
        ...

    @property
    def intervals(self) -> Intervals:
        """Intervals; an agent that was not seen for a lease is offline."""
        ...


def check_request(request: Request, context: JobContext) -> Findings:
    """Return errors, which reject a job, and warnings, which do not."""
    errors, warnings = limit_errors(request), _time(request)
    if request.priority == "high" and not context.urgent:
        errors.append(
            FieldError(
                "priority",
                msg("queue.high_which_administrators_alone", "is high, which administrators alone may ask for"),
                msg("queue.normal_low", "normal or low"),
            )
        )
    wrong = {re.split(r"[.\[]", error.field)[0] for error in errors}
    model, problems = (None, list[FieldError]()) if "model" in wrong else _model(request, context)
    errors += problems
    if "specs" not in wrong:
        more = _specs(request, model, context)
        errors, warnings = errors + more[0], warnings + more[1]
    if model is not None and not wrong & {"inputs", "sweep", "dims"}:  # invalid sizes would cause follow-up errors
        more = _inputs(request, model, context)
        errors, warnings = errors + more[0], warnings + more[1]
    if not wrong & {"advise", "inputs", "dims"}:
        errors += _data(request, context)
    if not wrong & {"specs", "sweep", "search"}:
        errors += search_errors(request, model)
    if not wrong & {"specs", "model", "advise"}:
        errors += advise_errors(request)
    return errors, warnings


def point_count(request: Request) -> int:
    """Return the number of points of a job."""
    return len(request.specs) * shapes.points_per_spec(request)


def _specs(request: Request, model: InspectedModel | None, context: JobContext) -> Findings:
    agents = context.agents()
    online = [a for a in agents if a.online(context.intervals.lease_s)]
    errors = [*machines.backend_errors(request.specs, model), *machines.agent_errors(request.specs, agents)]
    errors += machines.lane_errors(request.specs, max([1, *request.measure.load.concurrency]))
    return errors, list(machines.agent_warnings(request.specs, agents, online))


def _inputs(request: Request, model: InspectedModel, context: JobContext) -> Findings:
    arrays, errors = _arrays(request, context)
    errors += [*shapes.input_errors(request, model), *shapes.array_errors(request, arrays)]
    sizes = shapes.known_sizes(request, arrays)
    errors += shapes.size_errors(request, sizes)
    too_large, large = shapes.input_memory_errors(request, sizes)
    return errors + too_large, [*shapes.size_warnings(request, arrays), *large]


def _model(request: Request, context: JobContext) -> tuple[InspectedModel | None, list[FieldError]]:
    inspection = context.inspection(request.model.blob)
    if inspection is None:
        return None, [
            FieldError(
                "model.blob",
                msg("queue.file_not_here", "this file is not here"),
                msg("queue.upload_model_first", "upload the model first"),
            )
        ]
    content = inspection_from_json(inspection)
    if request.case.name:
        return None, []  # a bundle, which the agent checks
    if not isinstance(content, InspectedModel):
        kind = (
            msg("queue.array", "an array")
            if isinstance(content, InspectedArray)
            else msg("queue.file_weights", "a file of weights")
        )
        name = inspection.get("name", msg("queue.file", "the file"))
        return None, [FieldError("model.blob", msg("queue.not_model", f"{name} is {kind}, not a model"))]
    return content, list(_part_errors(request.model, content, context))


def _part_errors(model: ModelRef, content: InspectedModel, context: JobContext) -> Iterator[FieldError]:
    """Yield errors for weight files that are not uploaded, not named, or too short for the model."""
    blobs = {part.path: part.blob for part in model.parts}
    for i, part in enumerate(model.parts):
        if context.inspection(part.blob) is None:
            yield FieldError(
                f"model.parts[{i}].blob",
                msg("queue.file_not_here", "this file is not here"),
                msg("queue.upload_first", "upload it first"),
            )
    for file in content.external:
        if file.path not in blobs:
            error = msg("queue.missing_weights_model_lie", f"{file.path} is missing: weights of the model lie in it")
            yield FieldError(
                "model.parts",
                error,
                msg("queue.upload_together_model_both", "upload it together with the model, or both in a zip"),
            )
        elif (inspection := context.inspection(blobs[file.path])) and (
            size := inspection["size_bytes"]
        ) < file.size_bytes:
            error = msg(
                "queue.bytes_model_looks",
                f"{file.path} has {size:,} bytes, and the model looks for {file.size_bytes:,}",
            )
            yield FieldError(
                "model.parts",
                error,
                msg("queue.one_saved_model", "check that this file was saved together with the model"),
            )


def _arrays(request: Request, context: JobContext) -> tuple[dict[int, shapes.Array], list[FieldError]]:
    """Return the uploaded arrays by the index of their input, and errors."""
    arrays, errors = dict[int, shapes.Array](), list[FieldError]()
    for i, blob in ((i, row.blob) for i, row in enumerate(request.inputs) if row.fill == "file"):
        inspection = context.inspection(blob)
        if inspection is None:
            errors.append(
                FieldError(
                    f"inputs[{i}].blob",
                    msg("queue.file_not_here", "this file is not here"),
                    msg("queue.upload_npy_first", "upload the .npy first"),
                )
            )
        elif array := array_from_inspection(inspection):
            arrays[i] = array
        else:
            name = inspection.get("name", msg("queue.file", "the file"))
            errors.append(
                FieldError(f"inputs[{i}].blob", msg("queue.model_not_array", f"{name} is a model, not an array"))
            )
    return arrays, errors


def _data(request: Request, context: JobContext) -> Iterator[FieldError]:
    """Yield errors for the user's own rows that are not arrays, or do not fit the model."""
    arrays = {name: array_from_inspection(context.inspection(blob)) for name, blob in request.advise.data.items()}
    for name in (name for name, array in arrays.items() if array is None):
        yield FieldError(
            f"advise.data.{name}",
            msg("queue.array_not_here", "this array is not here"),
            msg("queue.upload_npy_first", "upload the .npy first"),
        )
    uploaded = {name: array for name, array in arrays.items() if array}
    if uploaded and len(uploaded) == len(arrays):
        named = {dim for row in request.inputs for dim in row.dims if isinstance(dim, str)}
        free = (named - request.dims.keys()) | {request.sweep.dim}
        yield from row_errors(request.inputs, request.dims, free, uploaded)


def array_from_inspection(inspection: dict[str, Any] | None) -> shapes.Array | None:
    """Return the array of an inspection; None for other files."""
    content = inspection_from_json(inspection) if inspection else None
    if not inspection or not isinstance(content, InspectedArray):
        return None
    return shapes.Array(str(inspection.get("name") or msg("queue.file", "the file")), content.dtype, content.shape)


def _time(request: Request) -> list[FieldError]:
    """Return an error if the points take longer than the timeout."""
    steps = shapes.points_per_spec(request) * request.measure.load.step_count * request.repeat
    needed = steps * request.measure.min_s
    if not needed > request.timeout_s:
        return []
    error = msg(
        "queue.s_but_points_spec", f"is {request.timeout_s:g} s, but the points of a spec take {needed:g} s and more"
    )
    return [FieldError("timeout_s", error, msg("queue.raise_measure_min_s", "raise it, or measure.min_s down"))]
