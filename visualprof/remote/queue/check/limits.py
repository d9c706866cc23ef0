"""Limits of a job that do not depend on the model: ranges of numbers, forms of names, duplicate names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import get_args

from visualprof.messages import msg
from visualprof.remote.cases import STEPS, all_vendors
from visualprof.remote.protocol import (
    DTYPES,
    INPUT_NAME_MAX,
    SPEC_ID,
    CaseRef,
    Input,
    ModelRef,
    Platform,
    Request,
    Spec,
    cpu_numbers,
)
from visualprof.remote.queue.check.external import MAX_FILES as MAX_PARTS
from visualprof.remote.queue.check.load_limits import check_range, load_errors
from visualprof.remote.queue.check.names import check_distinct, check_name
from visualprof.remote.queue.check.request_json import FieldError, suggest
from visualprof.remote.queue.errors import InvalidResult

MAX_SPECS = 64
MAX_VALUES = 64
MAX_BATCH = 65_536
MAX_SIZE = 2**31 - 1
MAX_RANK = 32
MAX_INPUTS = 256
MAX_NAME = 200
MAX_ONLY = 64
MAX_METRIC = 65_536
KEY = re.compile(r"[\x21-\x7e]{1,200}")
CASE = re.compile(r"[A-Za-z0-9_-]{1,100}")
SHA256 = re.compile(r"[0-9a-f]{64}")
DEVICE = re.compile(r"[a-z][a-z0-9_]{0,15}(:\d{1,3})?")
VERSION = re.compile(r"[A-Za-z0-9.+_-]{0,64}")
RANGES = (
    ("measure.warmup_s", 0, 600),
    ("measure.min_s", 0.001, 3600),
    ("measure.max_s", 0.001, 3600),
    ("measure.min_n", 1, 1_000_000),
    ("profile.runs", 0, 10_000),
    ("monitor_interval_s", 0.01, 60),
    ("timeout_s", 1, 86_400),
    ("retries", 0, 10),
    ("repeat", 1, 30),
    ("quiet_s", 0, 3600),
    ("advise.max_error", 0, 1e9),
    ("advise.budget_s", 0, 86_400),
    ("advise.candidate_s", 1, 3600),
    ("search.trials", 0, 2000),
    ("search.trial_s", 0.05, 60),
    ("search.budget_s", 1, 86_400),
    ("search.step_s", 1, 3600),
    ("search.seed", 0, 2**31 - 1),
)


def limit_errors(request: Request) -> list[FieldError]:
    """Return all errors that are independent of model and agents."""
    parts = (
        _texts(request),
        _numbers(request),
        _pin(request),
        load_errors(request.measure.load),
        _sweep(request),
        _all_inputs(request),
        _all_specs(request.specs),
        _advise(request),
        _case(request.case),
    )
    return [error for part in parts for error in part]


def _texts(request: Request) -> Iterator[FieldError]:
    if not KEY.fullmatch(request.key):
        yield FieldError(
            "key",
            msg("queue.must_1_200_visible", "must have 1 to 200 visible ASCII characters"),
            msg("queue.any_no_other_job", "any that no other job has"),
        )
    yield from _check_name("name", request.name, empty=True)
    yield from model_errors(request.model)


def _case(case: CaseRef) -> Iterator[FieldError]:
    """Yield errors for a benchmark case's names and settings."""
    if not case.name:
        return
    for field, name in (("case.name", case.name), ("case.framework", case.framework)):
        if not CASE.fullmatch(name):
            yield FieldError(field, msg("queue.must_1_100_letters", "must have 1 to 100 letters, digits, - and _"))
    if case.vendor not in all_vendors():
        yield FieldError(
            "case.vendor",
            msg("queue.there_no_vendor", f"there is no vendor {case.vendor[:80]!r}"),
            suggest(case.vendor, [*all_vendors()]),
        )
    for key, value in case.settings.items():
        if not _is_json(value):
            yield FieldError(
                f"case.settings.{key[:100]}",
                msg("queue.no_json_2", "is no JSON"),
                msg("queue.text_quotes_openvino", 'a text has quotes: "openvino"'),
            )
    for step, limit_s in case.step_timeouts.items():
        if step and step not in STEPS:
            yield FieldError(
                f"case.step_timeouts.{step[:40]}", msg("queue.no_step_case", "is no step of a case"), ", ".join(STEPS)
            )
        yield from check_range(f"case.step_timeouts.{step[:40]}", limit_s, 1, 86_400)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def model_errors(model: ModelRef) -> Iterator[FieldError]:
    """Yield errors for names and digests of a model's files."""
    yield from _check_name("model.name", model.name)
    if model.name.strip(" .") == "" or re.search(r"[/\\]", model.name):
        yield FieldError(
            "model.name",
            msg("queue.must_files_name_without", "must be a file's name without folders"),
            msg("queue.uploads_answer", "as the upload's answer has it"),
        )
    yield from _parts(model)
    if not SHA256.fullmatch(model.blob):
        yield FieldError(
            "model.blob",
            msg("queue.no_sha256_file", "is no sha256 of a file"),
            msg("queue.upload_model_first", "upload the model first"),
        )


def _parts(model: ModelRef) -> Iterator[FieldError]:
    """Yield errors for weight files, which the agent and the result store next to the model."""
    if len(model.parts) > MAX_PARTS:
        yield FieldError(
            "model.parts",
            msg("queue.files", f"has {len(model.parts)} files"),
            msg("queue.most", f"at most {MAX_PARTS}"),
        )
    names = [model.name, *(part.path for part in model.parts)]
    try:
        check_distinct(names)
        for part in model.parts[:MAX_PARTS]:
            check_name(part.path)
    except InvalidResult as refused:
        yield FieldError("model.parts", refused.error, refused.hint or None)
    for i, part in enumerate(model.parts):
        if not SHA256.fullmatch(part.blob):
            yield FieldError(
                f"model.parts[{i}].blob",
                msg("queue.no_sha256_file", "is no sha256 of a file"),
                msg("queue.upload_first", "upload it first"),
            )


def _numbers(request: Request) -> Iterator[FieldError]:
    for field, low, high in RANGES:
        yield from check_range(field, attrgetter(field)(request), low, high)
    measure, at = request.measure, request.profile.at
    if measure.min_s > measure.max_s:
        yield FieldError(
            "measure.max_s",
            msg("queue.s_less_than_min", f"is {measure.max_s:g} s, less than min_s, which is {measure.min_s:g} s"),
        )
    if request.price_per_hour is not None:
        yield from check_range("price_per_hour", request.price_per_hour, 0, 1e9)
    if at and at not in request.sweep.values:
        yield FieldError(
            "profile.at",
            msg("queue.not_among_swept_sizes", f"{at} is not among the swept sizes"),
            msg("queue.0_takes_first", "0 takes the first"),
        )
    if len(request.dims) > MAX_INPUTS:
        yield FieldError(
            "dims", msg("queue.names", f"has {len(request.dims):,} names"), msg("queue.most", f"at most {MAX_INPUTS}")
        )
    for name, size in request.dims.items():
        yield from check_range(f"dims.{name[:MAX_NAME]}", size, 1, MAX_SIZE)


def _advise(request: Request) -> Iterator[FieldError]:
    advise, names = request.advise, [row.name for row in request.inputs]
    if len(advise.only) > MAX_ONLY or any(not 0 < len(name) <= MAX_NAME for name in advise.only):
        yield FieldError(
            "advise.only",
            msg("queue.too_many_names_one", "has too many names, or a name is empty or too long"),
            msg("queue.most", f"at most {MAX_ONLY}"),
        )
    if len(advise.metric) > MAX_METRIC:
        yield FieldError(
            "advise.metric",
            msg("queue.characters", f"has {len(advise.metric):,} characters"),
            msg("queue.most", f"at most {MAX_METRIC:,}"),
        )
    for name, blob in advise.data.items():
        if name not in names:
            yield FieldError(
                f"advise.data.{name[:MAX_NAME]}",
                msg("queue.model_no_such_input", "the model has no such input"),
                suggest(name, names),
            )
        elif not SHA256.fullmatch(blob):
            yield FieldError(
                f"advise.data.{name}",
                msg("queue.no_sha256_file", "is no sha256 of a file"),
                msg("queue.upload_npy_first", "upload the .npy first"),
            )


def _pin(request: Request) -> Iterator[FieldError]:
    if request.pin in ("", "auto"):
        return
    try:
        cpu_numbers(request.pin)
    except ValueError as error:
        yield FieldError("pin", str(error), msg("queue.0_3_8_auto", "0-3,8 or auto"))


def _sweep(request: Request) -> Iterator[FieldError]:
    values = request.sweep.values
    yield from _check_name("sweep.dim", request.sweep.dim, empty=True)
    if not 1 <= len(values) <= MAX_VALUES:
        yield FieldError(
            "sweep.values",
            msg("queue.sizes", f"has {len(values)} sizes"),
            msg("queue.allowed_1", f"allowed: 1 to {MAX_VALUES}"),
        )
    for i, value in enumerate(values):
        yield from check_range(f"sweep.values[{i}]", value, 1, MAX_BATCH)
        if value in values[:i]:
            yield FieldError(f"sweep.values[{i}]", msg("queue.there_twice", f"{value} is there twice"))


def _all_inputs(request: Request) -> Iterator[FieldError]:
    if len(request.inputs) > MAX_INPUTS:
        yield FieldError(
            "inputs",
            msg("queue.inputs", f"has {len(request.inputs):,} inputs"),
            msg("queue.most", f"at most {MAX_INPUTS}"),
        )
    yield from _twice("inputs", "name", [i.name for i in request.inputs])
    for i, row in enumerate(request.inputs):
        yield from _input(f"inputs[{i}]", row)


def _input(path: str, row: Input) -> Iterator[FieldError]:
    if not 0 < len(row.name) <= INPUT_NAME_MAX:
        yield FieldError(f"{path}.name", msg("queue.must_1_characters", f"must have 1 to {INPUT_NAME_MAX} characters"))
    if row.dtype not in DTYPES:
        error = msg("queue.no_type_values", f"{row.dtype[:40]!r} is no type of values")
        yield FieldError(f"{path}.dtype", error, suggest(row.dtype, list(DTYPES)))
    if len(row.dims) > MAX_RANK:
        yield FieldError(
            f"{path}.dims",
            msg("queue.dimensions_2", f"has {len(row.dims)} dimensions"),
            msg("queue.most", f"at most {MAX_RANK}"),
        )
    for i, dim in enumerate(row.dims[:MAX_RANK]):
        if isinstance(dim, int):
            yield from check_range(f"{path}.dims[{i}]", dim, 1, MAX_SIZE)
        else:
            yield from _check_name(f"{path}.dims[{i}]", dim)
    if row.fill == "file" and not SHA256.fullmatch(row.blob):
        yield FieldError(
            f"{path}.blob",
            msg("queue.no_sha256_file", "is no sha256 of a file"),
            msg("queue.upload_npy_first", "upload the .npy first"),
        )
    if row.fill != "file" and row.blob:
        yield FieldError(
            f"{path}.blob",
            msg("queue.given_but_fill", f"is given, but fill is {row.fill!r}"),
            msg("queue.set_fill_file", "set fill to 'file'"),
        )


def _all_specs(specs: Sequence[Spec]) -> Iterator[FieldError]:
    if not 1 <= len(specs) <= MAX_SPECS:
        yield FieldError(
            "specs",
            msg("queue.entries", f"has {len(specs)} entries"),
            msg("queue.allowed_1", f"allowed: 1 to {MAX_SPECS}"),
        )
    yield from _twice("specs", "id", [s.id.casefold() for s in specs])  # some file systems are case-insensitive
    for i, spec in enumerate(specs):
        yield from _spec(f"specs[{i}]", spec)


def _spec(path: str, spec: Spec) -> Iterator[FieldError]:
    if not SPEC_ID.fullmatch(spec.id):
        yield FieldError(
            f"{path}.id",
            msg("queue.no_name_folder", f"{spec.id[:60]!r} is no name of a folder"),
            msg("queue.letters_digits_most_48", "letters, digits, . _ -; at most 48"),
        )
    platforms = list(get_args(Platform))
    if spec.platform and spec.platform not in platforms:
        yield FieldError(
            f"{path}.platform",
            msg("queue.there_no", f"there is no {spec.platform[:40]!r}"),
            suggest(spec.platform, platforms),
        )
    if not DEVICE.fullmatch(spec.device):
        yield FieldError(
            f"{path}.device",
            msg("queue.no_device", f"{spec.device[:40]!r} is no device"),
            msg("queue.cpu_cuda_0", "cpu, cuda:0, ..."),
        )
    if not VERSION.fullmatch(spec.version):
        error = msg("queue.no_version", f"{spec.version[:80]!r} is no version")
        yield FieldError(f"{path}.version", error, msg("queue.agent_empty_any", "as an agent has it, or empty for any"))
    if len(spec.agent) > MAX_NAME:
        yield FieldError(f"{path}.agent", msg("queue.no_id_agent", "is no id of an agent"))
    yield from check_range(f"{path}.threads", spec.threads, 0, 1024)
    if len(spec.options) > 64 or any(len(k) > MAX_NAME or len(v) > 1000 for k, v in spec.options.items()):
        yield FieldError(f"{path}.options", msg("queue.too_many_too_long", "are too many or too long"))


def _check_name(field: str, text: str, empty: bool = False) -> Iterator[FieldError]:
    if not text and not empty:
        yield FieldError(field, msg("queue.empty", "is empty"))
    elif len(text) > MAX_NAME or not all(c.isprintable() for c in text):
        yield FieldError(
            field,
            msg(
                "queue.must_most_characters_none",
                f"must have at most {MAX_NAME} characters, and none that cannot be shown",
            ),
        )


def _twice(path: str, attribute: str, names: Sequence[str]) -> Iterator[FieldError]:
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        if name in seen:
            yield FieldError(
                f"{path}[{i}].{attribute}",
                msg("queue.also", f"{name[:MAX_NAME]!r} is also that of {path}[{seen[name]}]"),
            )
        seen.setdefault(name, i)
