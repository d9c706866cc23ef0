"""Values of untrusted JSON: a value of an unexpected type counts as unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from visualprof.messages import msg
from visualprof.reader.chrome.recovery import repair
from visualprof.reader.source import DECODE_ERRORS, GROWING_HINT, Source

Json = dict[str, Any]
DAMAGED_HINT = msg(
    "reader.damaged_while_being_copied",
    "was it damaged while being copied, or edited? such a file can only be read whole",
)
MAX_TEXT_CHARS = 500
MAX_ITEMS = 100
MAX_BYTES = 1 << 30
MAX_NATURAL, _NATURAL_DIGITS = 1 << 62, 20  # the same limit as `MAX_ID` in reader/native/scan.h


def load_object(source: Source, kind: str, hint: str = "") -> Json:
    """Return the JSON object in a whole file, or an empty object for another JSON value.

    Args:
        source: The file.
        kind: The kind of file, for messages: `a whole MegEngine memory plan`.
        hint: What to do if it cannot be decoded (default: depends on whether it is truncated or damaged).

    Raises:
        FormatError: The file is over 1 GiB, or not complete JSON.
        SourceError: The file cannot be read.
    """
    data = source.read_all(MAX_BYTES, kind, msg("reader.one", "check that this is the right file"))
    try:
        return json_object(msgspec.json.decode(data))
    except DECODE_ERRORS as error:
        try:
            return json_object(msgspec.json.decode(repair(data)))
        except DECODE_ERRORS:
            default_hint = GROWING_HINT if "truncated" in str(error) else DAMAGED_HINT
            raise source.error(msg("reader.not", f"not {kind} ({error})"), hint or default_hint) from error


def capture_meta(head: Mapping[str, Any], format_fields: Mapping[str, Any]) -> Json:
    """Return what `visualprof.capture` wrote into a file, as fields of `Meta` that the format itself does not know.

    Args:
        head: The file's own keys.
        format_fields: Fields of `Meta` from the format.
    """
    facts = json_object(head.get("visualprof"))
    captured_fields = {"host": facts.get("host"), "rank": facts.get("rank"), "world_size": facts.get("world_size")}
    captured_fields["clock_origin_ns"] = facts.get("clock_origin_ns")
    types = {"host": str, "rank": int, "world_size": int, "clock_origin_ns": int}
    unknown = {k: v for k, v in captured_fields.items() if type(v) is types[k] and format_fields.get(k, -1) in (-1, "")}
    return unknown | ({"clock_origin_ns": -1} if facts.get("align_time") is False else {})


def label(value: str | int | float | None) -> str:
    """Return a name or an identifier as text, "" for null; 7, 7.0 and "7" are equal."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return "" if value is None else str(value)


def display_text(raw: bytes) -> str:
    """Return a JSON value as display text: a string without quotes, anything else on one line."""
    text = raw.decode("utf-8", "replace")
    try:
        if text.startswith('"'):
            return str(msgspec.json.decode(text))
        if "\n" not in text:
            return text
        import json

        return json.dumps(msgspec.json.decode(text), ensure_ascii=False)
    except DECODE_ERRORS:  # the decoder skips some escapes that it cannot decode
        return text.strip('"')


def json_object(value: object) -> Json:
    """Return the value if it is a JSON object, else an empty object."""
    return cast("Json", value) if isinstance(value, dict) else {}


def json_list(value: object) -> list[object]:
    """Return the value if it is a JSON list, else an empty list."""
    return cast("list[object]", value) if isinstance(value, list) else []


def json_objects(value: object) -> list[Json]:
    """Return the objects in a JSON list, none for any other value."""
    return [cast("Json", item) for item in json_list(value) if isinstance(item, dict)]


def first_items(value: object) -> list[object]:
    """Return the first 100 values of a list, none for any other value."""
    return json_list(value)[:MAX_ITEMS]


def text(value: object) -> str:
    """Return a text, shortened; numbers become text, anything else ""."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        finite = number(value) if isinstance(value, float) else integer(value)
        return "" if finite is None else str(finite)
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) else ""


def texts(value: object) -> list[str]:
    """Return the texts in a list."""
    return [converted for item in first_items(value) if (converted := text(item))]


def natural(value: str) -> int:
    """Return a number below `MAX_NATURAL`, -1 for any other text."""
    is_number = value.isascii() and value.isdigit() and len(value) < _NATURAL_DIGITS
    return converted if is_number and (converted := int(value)) < MAX_NATURAL else -1


def number(value: object) -> float | None:
    """Return a finite number, else `None`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e18 and math.isfinite(value) else None


def integer(value: object) -> int | None:
    """Return an integer of 63 bits, else `None`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) < 2**62 else None
    finite = number(value)
    return None if finite is None else round(finite)
