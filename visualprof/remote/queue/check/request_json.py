"""Parsing of a submission's JSON to a `Request`: no unknown fields, and every value has its type."""

from __future__ import annotations

import difflib
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.source import DECODE_ERRORS
from visualprof.remote.protocol import Request, build

MAX_BYTES = 1 << 20
MAX_ERRORS = 200
MAX_ITEMS = 2000
TYPE_NAMES = {
    int: msg("queue.whole_number", "a whole number"),
    float: "a number",
    str: "a text",
    bool: msg("queue.true_false", "true or false"),
    type(None): "null",
}


@dataclass(frozen=True)
class FieldError:
    """An error in a job.

    Attributes:
        field: Path of the field, as `inputs[0].dims[1]` or `specs[2].agent`; "" is the whole job.
        error: What is wrong.
        hint: What to do about it.
    """

    field: str
    error: str
    hint: str | None = None


class InvalidRequest(BadParameter):
    """An invalid request.

    Attributes:
        errors: All errors; the first one is the message.
    """

    def __init__(self, errors: list[FieldError]) -> None:
        first = errors[0]
        super().__init__(f"{first.field}: {first.error}" if first.field else first.error, first.hint or "")
        self.errors = errors


def parse_request(body: bytes) -> Request:
    """Parse the request of a submission.

    Raises:
        InvalidRequest: It is not JSON, has unknown or missing fields, or values of other types.
    """
    if len(body) > MAX_BYTES:
        error = msg("queue.job_over_mib_json", f"the job is over {MAX_BYTES >> 20} MiB of JSON")
        raise InvalidRequest(
            [FieldError("", error, msg("queue.arrays_uploaded_files", "arrays are uploaded as files"))]
        )
    try:
        value: object = msgspec.json.decode(body)
    except DECODE_ERRORS as error:
        raise InvalidRequest(
            [
                FieldError(
                    "",
                    msg("queue.no_json", f"this is no JSON: {error}"),
                    msg("queue.docs_http_api_md", "docs/http-api.md describes a job"),
                )
            ]
        ) from error
    errors: list[FieldError] = []
    _walk(Request, value, "", errors)
    if errors:
        raise InvalidRequest(errors[:MAX_ERRORS])
    return build(Request, value)


def is_at_or_below(field: str, path: str) -> bool:
    """Return whether a field is at a path or below it: `specs[1].agent` is below `specs[1]`, `specs[12]` is not."""
    return field == path or (field.startswith(path) and field[len(path)] in ".[")


def suggest(name: str, names: list[str]) -> str:
    """Return a hint for a name that is not among the known ones."""
    close = difflib.get_close_matches(name[:200], names, 1)
    if close:
        return msg("queue.did_you_mean", f"did you mean {close[0]!r}?")
    return msg("queue.known", f"known: {', '.join(map(repr, names[:12]))}") if names else ""


def _walk(kind: Any, value: object, path: str, errors: list[FieldError]) -> None:
    origin, arguments = get_origin(kind), get_args(kind)
    if len(errors) > MAX_ERRORS:
        return
    if is_dataclass(kind) or origin is dict:
        if not isinstance(value, dict):
            errors.append(_wanted(path, msg("queue.object", "an object"), value))
            return
        items: dict[str, object] = value  # pyright: ignore[reportUnknownVariableType]
        kinds = _fields(kind, items, path, errors) if origin is None else dict.fromkeys(items, arguments[1])
        for name, inner in kinds.items():
            _walk(inner, items[name], _join(path, name), errors)
    elif origin is list:
        _list(arguments[0], value, path, errors)
    elif origin is Literal:
        if value not in arguments or not isinstance(value, str):
            errors.append(_wanted(path, " or ".join(repr(v) for v in arguments), value))
    else:
        choices = arguments if origin in (Union, UnionType) else (kind,)
        if not any(_plain(choice, value) for choice in choices):
            errors.append(_wanted(path, " or ".join(TYPE_NAMES[choice] for choice in choices), value))


def _fields(kind: Any, items: dict[str, object], path: str, errors: list[FieldError]) -> dict[str, Any]:
    """Return the types of the fields that are present; add errors for unknown and missing fields."""
    hints, known_fields = _hints(kind), {f.name: f for f in fields(kind)}
    unknown = [name for name in items if name not in known_fields][:MAX_ERRORS]
    errors += [
        FieldError(
            _join(path, n), msg("queue.there_no_such_field", "there is no such field"), suggest(n, list(known_fields))
        )
        for n in unknown
    ]
    for name, field in known_fields.items():
        if name not in items and field.default is MISSING and field.default_factory is MISSING:
            errors.append(FieldError(_join(path, name), msg("queue.missing", "is missing")))
    return {name: hints[name] for name in known_fields if name in items}


def _list(kind: Any, value: object, path: str, errors: list[FieldError]) -> None:
    if not isinstance(value, list):
        errors.append(_wanted(path, "a list", value))
        return
    items: list[object] = value  # pyright: ignore[reportUnknownVariableType]
    if len(items) > MAX_ITEMS:
        errors.append(
            FieldError(
                path, msg("queue.entries", f"has {len(items):,} entries"), msg("queue.most", f"at most {MAX_ITEMS:,}")
            )
        )
        return
    for i, item in enumerate(items):
        _walk(kind, item, f"{path}[{i}]", errors)


def _plain(kind: type, value: object) -> bool:
    """Return whether a value has a plain type. JSON has no NaN, and true is not a number."""
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind


def _wanted(path: str, expected: str, value: object) -> FieldError:
    shown = msgspec.json.encode(value).decode()
    return FieldError(
        path, msg("queue.must_not", f"must be {expected}, not {shown if len(shown) <= 40 else shown[:40] + '...'}")
    )


def _join(path: str, name: str) -> str:
    name = name if len(name) <= 100 else f"{name[:100]}..."
    return f"{path}.{name}" if path else name


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
