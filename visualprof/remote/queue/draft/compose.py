"""Conversion of a draft to a complete job, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, get_type_hints

from visualprof.messages import msg
from visualprof.remote.protocol import Input, Measure, ModelRef, Part, Profile, Request, Sweep
from visualprof.remote.queue.check.inspect import InspectedModel, Tensor, inspection_from_json
from visualprof.remote.queue.check.job import JobContext, array_from_inspection, check_request, point_count
from visualprof.remote.queue.check.limits import MAX_INPUTS
from visualprof.remote.queue.check.request_json import FieldError, is_at_or_below
from visualprof.remote.queue.check.shapes import Array, array_sizes
from visualprof.remote.queue.draft.forms import CheckedDraft, Draft, DraftError, DraftInput, DraftSpec
from visualprof.remote.queue.draft.grammar import (
    EXAMPLES,
    dims_text,
    guess_batch_dim,
    parse_dims,
    parse_sizes,
    sizes_text,
)
from visualprof.remote.queue.draft.loads import load_texts, parse_load
from visualprof.remote.queue.draft.searches import batch_text, parse_search, search_draft
from visualprof.remote.queue.draft.specs import AgentList, expand_specs, first_specs, generate_spec_id, spec_choices
from visualprof.remote.queue.store.records import Agent

# Fields of a draft about measuring, and their paths in a request.
MEASURE_FIELDS = {
    "warmup_s": "measure.warmup_s",
    "min_s": "measure.min_s",
    "max_s": "measure.max_s",
    "min_n": "measure.min_n",
    "profile_runs": "profile.runs",
    "profile_at": "profile.at",
    "timeout_s": "timeout_s",
    "retries": "retries",
    "repeat": "repeat",
    "quiet_s": "quiet_s",
    "pin": "pin",
    "price_per_hour": "price_per_hour",
}
TIMEOUT_S = Request.timeout_s
_OWNERS: tuple[tuple[str, Any], ...] = (("measure", Measure), ("profile", Profile), ("", Request))
_NUMBER = re.compile(r"\d{1,18}(\.\d*)?(e[+-]?\d{1,3})?", re.IGNORECASE)


def compose(draft: Draft, context: JobContext) -> CheckedDraft:
    """Return the job of a draft, with its errors and the available choices."""
    inspection = context.inspection(draft.model)
    content = inspection_from_json(inspection) if inspection else None
    model = content if isinstance(content, InspectedModel) else None
    name = draft.model_name or str(inspection.get("name", "") if inspection else "")
    machines = AgentList(context.agents(), context.intervals.lease_s)
    arrays = _arrays(draft, context)
    inputs, errors = _inputs(draft, model, name, arrays)
    decided = array_sizes(inputs, {i: arrays[row.blob] for i, row in enumerate(inputs) if row.blob in arrays})
    sweep, sweep_errors = _sweep(draft, model, inputs, decided)
    dims, size_errors = _sizes(draft, model, inputs, sweep.dim, decided)
    wanted = draft.specs if draft.specs is not None else first_specs(model, machines) if model else []
    specs, spec_errors = expand_specs(wanted, model, machines)
    numbers, number_errors = _numbers(draft.measure)
    load, load_errors = parse_load(draft.measure)
    search, search_errors = parse_search(draft.search, sweep.dim)
    errors += [*sweep_errors, *size_errors, *spec_errors, *number_errors, *load_errors, *search_errors]
    if "timeout_s" not in numbers[""]:
        advice_s = draft.advise.budget_s + draft.advise.candidate_s if draft.advise.objective else 0
        numbers[""]["timeout_s"] = TIMEOUT_S + advice_s + (search.budget_s + 2 * search.step_s) * bool(search.objective)
    request = Request(
        key=draft.key or "draft",
        model=ModelRef(draft.model, name, [Part(path, blob) for path, blob in draft.parts.items()]),
        specs=specs,
        name=draft.name.strip(),
        inputs=inputs,
        dims=dims,
        sweep=sweep,
        measure=Measure(**numbers["measure"], load=load),
        profile=Profile(**numbers["profile"]),
        spread=draft.spread,
        priority=draft.priority,
        advise=draft.advise,
        search=search,
        **numbers[""],
    )
    checked, warnings = check_request(request, context)
    errors += [DraftError(e.field, e.error, e.hint) for e in checked if not _covered(e, errors)]
    return CheckedDraft(
        request=request,
        errors=errors,
        warnings=warnings,
        points=point_count(request),
        dims=_names(inputs),
        sizes={dim: size for dim, size in (decided | dims).items() if dim != sweep.dim},
        choices=[spec_choices(spec, machines) for spec in specs],
    )


def draft_from_request(request: Request, agents: Sequence[Agent]) -> Draft:
    """Return the draft that composes to a job. Generated ids stay generated."""
    inputs = [DraftInput(i.name, i.dtype, dims_text(i.dims), i.fill, i.blob) for i in request.inputs]
    specs = [
        DraftSpec(
            id="" if spec.id == generate_spec_id(spec, agents) else spec.id,
            backends=[spec.backend],
            precisions=[spec.precision],
            threads=[str(spec.threads or "")],
            **{name: getattr(spec, name) for name in ("version", "agent", "platform", "device", "options")},
        )
        for spec in request.specs
    ]
    return Draft(
        model=request.model.blob,
        model_name=request.model.name,
        parts={part.path: part.blob for part in request.model.parts},
        name=request.name,
        arrays=[i.blob for i in request.inputs if i.fill == "file"],
        inputs=inputs,
        sweep=request.sweep.dim,
        sizes=sizes_text(request.sweep.values) if request.sweep.dim else None,
        dims={name: str(size) for name, size in request.dims.items()},
        specs=specs,
        spread=request.spread,
        priority=request.priority,
        advise=request.advise,
        search=search_draft(request.search),
        measure={name: text for name, text in measure_texts(request).items() if text != DEFAULT_TEXTS[name]},
    )


def measure_texts(request: Request) -> dict[str, str]:
    """Return the values of `MEASURE_FIELDS` and of the load in a request, as texts.

    "" means the first size for profile_at, and unknown for price_per_hour.
    """
    texts: dict[str, str] = {}
    for name, path in MEASURE_FIELDS.items():
        owner, _, field = path.rpartition(".")
        value = getattr(getattr(request, owner) if owner else request, field)
        nothing = value is None or (name == "profile_at" and not value)
        texts[name] = "" if nothing else value if isinstance(value, str) else f"{value:.15g}"
    return texts | load_texts(request.measure.load)


DEFAULT_TEXTS = measure_texts(Request("", ModelRef("", ""), []))


def _covered(error: FieldError, errors: Sequence[FieldError]) -> bool:
    """Return whether an error follows from another error of the same field."""
    return any(is_at_or_below(error.field, e.field) or is_at_or_below(e.field, error.field) for e in errors)


def _arrays(draft: Draft, context: JobContext) -> dict[str, Array]:
    """Return the uploaded arrays of a draft by blob."""
    named = dict.fromkeys([*draft.arrays, *(i.blob for i in draft.inputs or () if i.blob)])
    arrays = {blob: array_from_inspection(context.inspection(blob)) for blob in list(named)[:MAX_INPUTS]}
    return {blob: array for blob, array in arrays.items() if array}


def _inputs(
    draft: Draft, model: InspectedModel | None, model_name: str, arrays: Mapping[str, Array]
) -> tuple[list[Input], list[DraftError]]:
    tensors = {t.name: t for t in model.inputs} if model else {}
    rows = draft.inputs if draft.inputs is not None else [DraftInput(name) for name in tensors]
    inputs, errors = list[Input](), list[DraftError]()
    for i, row in enumerate(rows[: MAX_INPUTS + 1]):
        blob, fill = row.blob, row.fill
        if not fill:
            offered = {b: arrays[b] for b in draft.arrays if b in arrays}
            blob = _named_array(row.name, model_name, offered, len(rows) == 1)
            fill = "file" if blob else "random"
        dtype, dims = _shape(row, tensors.get(row.name), arrays.get(blob))
        if dims is None or not dtype:
            error = msg(
                "queue.models_file_not_say", f"the model's file does not say the shape of its input {row.name!r}"
            )
            hint = msg(
                "queue.write_shape_float32_batch",
                f"write it, as in --shape '{row.name}=float32[batch,3,224,224]', or give an array: --input",
            )
            errors.append(
                DraftError(f"inputs[{i}].dims", error, msg("queue.file_npy", f"{hint} {row.name}=FILE.npy"), "dims")
            )
        inputs.append(Input(row.name, dtype or "float32", dims or [], fill, blob if fill == "file" else ""))
    return inputs, errors


def _shape(row: DraftInput, tensor: Tensor | None, array: Array | None) -> tuple[str, list[int | str] | None]:
    """Return type and dimensions: those of the draft, else of the model's file, else of the array."""
    saved = tensor.dims if tensor else None
    declared = None if saved is None or None in saved else [dim for dim in saved if dim is not None]
    dtype = row.dtype or (tensor.dtype if tensor else "")
    dims = parse_dims(row.dims) if row.dims is not None else declared
    if (dims is None or not dtype) and array and row.dims is None:
        return array.dtype, ["batch", *array.shape[1:]] if array.shape else []
    return dtype or (array.dtype if array else "float32" if row.dims else ""), dims


def _named_array(name: str, model: str, arrays: Mapping[str, Array], only: bool) -> str:
    """Return the array of an input: `input.npy`, `model.input.npy`, or the only array for the only input; else ""."""
    names = {name, f"{model}.{name}", f"{PurePosixPath(model).stem}.{name}"}
    matching = [blob for blob, array in arrays.items() if array.name.rpartition(".")[0] in names]
    return matching[0] if matching else next(iter(arrays)) if only and len(arrays) == 1 else ""


def _names(inputs: Sequence[Input]) -> list[str]:
    return list(dict.fromkeys(d for i in inputs for d in i.dims if isinstance(d, str)))


def _sweep(
    draft: Draft, model: InspectedModel | None, inputs: Sequence[Input], decided: Mapping[str, int]
) -> tuple[Sweep, list[DraftError]]:
    """Return the sweep of a draft, and errors. Without sizes, it is the size in the arrays, else the model's."""
    dim = draft.sweep if draft.sweep is not None else guess_batch_dim([i.dims for i in inputs])
    searched = batch_text(draft.search, dim)
    text = searched or (draft.sizes if draft.sizes is not None else draft.usual_sizes if dim else "")
    try:
        usual = decided.get(dim) or (model.dims.get(dim, 1) if model else 1)
        values = parse_sizes(text) if text or draft.sizes is not None else [usual]
    except ValueError as error:
        return Sweep(dim, []), [DraftError("sweep.values", str(error), EXAMPLES, "sweep")]
    if dim or values == [1]:
        return Sweep(dim, values), []
    why = " ".join(model.warnings if model else []) or msg(
        "queue.every_dimension_model_fixed", "every dimension of the model is fixed"
    )
    return Sweep("", [1]), [
        DraftError("sweep.values", msg("queue.there_no_dimension_sweep", "there is no dimension to sweep"), why)
    ]


def _sizes(
    draft: Draft, model: InspectedModel | None, inputs: Sequence[Input], swept: str, decided: Mapping[str, int]
) -> tuple[dict[str, int], list[DraftError]]:
    """Return sizes of dimensions that are not swept: those of the draft, else the model's initial ones."""
    sizes, errors = dict[str, int](), list[DraftError]()
    usual = model.dims if model else {}
    names = [name for name in _names(inputs) if name != swept]
    for name in dict.fromkeys([*names, *draft.dims]):
        text = draft.dims.get(name, "" if name in decided else str(usual.get(name, "")))
        if re.fullmatch(r"0*[1-9]\d{0,17}", text):
            sizes[name] = int(text)
        elif name in draft.dims or name not in decided:
            error = (
                msg("queue.no_size", f"{text[:40]!r} is no size")
                if text
                else msg("queue.needs_size", "it needs a size")
            )
            errors.append(
                DraftError(f"dims.{name[:80]}", error, msg("queue.example_64", f"for example: {name[:80]}=64"), "size")
            )
            sizes[name] = 0
    return sizes, errors


def _numbers(texts: Mapping[str, str]) -> tuple[dict[str, dict[str, Any]], list[DraftError]]:
    """Return the request's fields by part, and errors for texts that are not numbers."""
    numbers, errors = {owner: dict[str, Any]() for owner, _ in _OWNERS}, list[DraftError]()
    kinds = {owner: get_type_hints(kind) for owner, kind in _OWNERS}
    for name, text in texts.items():
        owner, _, field = MEASURE_FIELDS.get(name, "").rpartition(".")
        if not text or not field:
            continue
        if kinds[owner][field] is str:
            numbers[owner][field] = text
            continue
        whole = kinds[owner][field] is int
        if re.fullmatch(r"\d{1,18}", text) if whole else _NUMBER.fullmatch(text):
            numbers[owner][field] = int(text) if whole else float(text)
        else:
            errors.append(
                DraftError(MEASURE_FIELDS[name], msg("queue.no_number", f"{text[:40]!r} is no number"), code="number")
            )
    return numbers, errors
