"""Parse the events of TensorBoard: `Event` messages with a `Summary`.

Definitions: tensorflow/tensorboard, compat/proto/event.proto and summary.proto.
"""

from __future__ import annotations

from ctypes import c_char_p, c_int64

import numpy as np

from visualprof.reader.fields import Fields, parse_fields
from visualprof.reader.native import FLOAT64, INT32, INT64, UINT8, function
from visualprof.reader.protobuf import Message
from visualprof.reader.run_data.rows import UNKNOWN_NS, ParsedRecords, RestartMark, ValueRows, group_rows
from visualprof.reader.run_data.tensors import scalar_of
from visualprof.reader.run_data.texts import number_texts
from visualprof.reader.trace.types import Floats, Ints, Mask

WALL_TIME, STEP, SUMMARY, SESSION_LOG = 1, 2, 5, 7
TAG, SIMPLE_VALUE, IMAGE, HISTOGRAM, AUDIO, TENSOR, METADATA = 1, 2, 4, 5, 6, 8, 9
_CONTENT_FIELDS = (IMAGE, HISTOGRAM, AUDIO, TENSOR)
_SESSION_START = 1
_DOUBLE_BITS = 64
_SPARE_ROWS, _MAX_SIMPLE_TAGS = 64, 1 << 16
_ARGUMENTS = (
    *(INT64, INT64, c_int64, c_int64, c_int64, c_int64),
    *(INT64, INT64, INT32, FLOAT64, UINT8, INT64, INT64),
    *(INT64, INT64, INT64),
)
_MAX_TIME_S = 9e9  # later than this, nanoseconds exceed 64 bits


def parse_events(data: bytes, start: Ints, size: Ints) -> ParsedRecords:
    """Return the logged values of events at byte ranges of `data`."""
    return _parse_simple_events(data, start, size) or _parse_events(data, start, size)


def _parse_simple_events(data: bytes, start: Ints, size: Ints) -> ParsedRecords | None:
    """Return the values of events in one pass, `None` if an event is damaged or has other content, or without C."""
    parse = function("vp_run_events", c_int64, c_char_p, *_ARGUMENTS)
    if parse is None:
        return None
    capacity = 2 * len(start) + _SPARE_ROWS
    step, wall_ns, value_start, value_size = (np.empty(capacity, np.int64) for _ in range(4))
    field, number, bits = np.empty(capacity, np.int32), np.empty(capacity), np.empty(capacity, np.uint8)
    max_tags = min(capacity, _MAX_SIMPLE_TAGS)
    first, first_size = np.empty((2, max_tags), np.int64)
    bounds: Ints = np.empty(max_tags + 1, np.int64)
    events = np.ascontiguousarray(start), np.ascontiguousarray(size), len(start), UNKNOWN_NS, capacity, max_tags
    columns = step, wall_ns, field, number, bits, value_start, value_size
    tag_count: int = parse(data, *events, *columns, first, first_size, bounds)
    if tag_count < 0:
        return None
    used_bounds: Ints = np.array(bounds[: tag_count + 1], np.int64)
    tag = np.repeat(np.arange(tag_count, dtype=np.int32), np.diff(used_bounds))
    rows = ValueRows(
        step=step,
        wall_ns=wall_ns,
        tag=tag,
        field=field,
        number=number,
        bits=bits,
        start=value_start,
        size=value_size,
    ).select(slice(len(tag)))
    texts = zip(first[:tag_count].tolist(), first_size[:tag_count].tolist(), strict=True)
    return ParsedRecords(rows, [data[at : at + length] for at, length in texts], used_bounds, [], 0)


def _parse_events(data: bytes, start: Ints, size: Ints) -> ParsedRecords:
    """Return the values of any events, field by field."""
    events, damaged = parse_fields(data, start, start + size)
    wall_ns = wall_times(events.last_values(WALL_TIME, len(start)).view(np.float64))
    step = events.last_values(STEP, len(start))
    summaries = events.with_number(SUMMARY, texts=True)
    parts, damaged_summaries = parse_fields(data, summaries.value, summaries.end)
    values = parts.with_number(1, texts=True)
    event = summaries.message[values.message]
    fields, damaged_values = parse_fields(data, values.value, values.end)
    rows, tags = _value_rows(data, values, fields)
    rows = rows._replace(step=step[event], wall_ns=wall_ns[event])
    return group_rows(
        rows.select(rows.tag >= 0),
        tags,
        [RestartMark(int(step[i]), int(wall_ns[i])) for i in _session_starts(data, events)],
        damaged + damaged_summaries + damaged_values,
    )


def wall_times(seconds: Floats) -> Ints:
    """Return Unix times in seconds as nanoseconds, `UNKNOWN_NS` for missing times and times out of range."""
    is_known = np.isfinite(seconds) & (seconds > 0) & (seconds < _MAX_TIME_S)
    whole = np.floor(np.where(is_known, seconds, 0))
    rest = np.rint((np.where(is_known, seconds, 0) - whole) * 1e9)
    return np.where(is_known, whole.astype(np.int64) * 10**9 + rest.astype(np.int64), UNKNOWN_NS)


def _value_rows(data: bytes, values: Fields, fields: Fields) -> tuple[ValueRows, list[bytes]]:
    """Return the rows of values, without steps and times, and their tags; the tag of an unnamed value is -1."""
    count = len(values.value)
    names = fields.with_number(TAG, texts=True)
    name_row = np.full(count, -1, np.int64)
    name_row[names.message] = np.arange(len(names.message))
    named = np.flatnonzero(name_row >= 0)
    tag = np.full(count, -1, np.int32)
    tag[named], tags = number_texts(data, names.value[name_row[named]], names.size[name_row[named]])
    field = np.zeros(count, np.int32)
    number = np.full(count, np.nan)
    for content in _CONTENT_FIELDS:
        field[fields.with_number(content, texts=True).message] = content
    simple = fields.with_number(SIMPLE_VALUE)
    field[simple.message] = SIMPLE_VALUE
    number[simple.message] = (simple.value & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
    unset = np.zeros(count, np.int64)
    rows = ValueRows(
        step=unset,
        wall_ns=unset,
        tag=tag,
        field=field,
        number=number,
        bits=np.zeros(count, np.uint8),
        start=values.value,
        size=values.size,
    )
    return rows, tags


def _session_starts(data: bytes, events: Fields) -> list[int]:
    """Return the events that record a restart of the writer."""
    logs = events.with_number(SESSION_LOG, texts=True)
    fields, _ = parse_fields(data, logs.value, logs.end)
    status = fields.last_values(1, len(logs.value))
    return logs.message[status == _SESSION_START].tolist()


def tensor_scalars(data: bytes, rows: ValueRows, chosen: Mask) -> tuple[Floats, Mask, Mask]:
    """Return the numbers of the chosen rows, which hold tensors.

    Returns:
        The numbers, whether each is known, and whether it has 64 bits; (k,).
    """
    picked = np.flatnonzero(chosen)
    numbers, bits = rows.number[picked], rows.bits[picked]
    is_known, is_double = bits > 0, bits == _DOUBLE_BITS
    rest = np.flatnonzero(~is_known)
    fields, _ = parse_fields(data, rows.start[picked[rest]], rows.start[picked[rest]] + rows.size[picked[rest]])
    tensors = fields.with_number(TENSOR, texts=True)
    contents = zip(rest[tensors.message].tolist(), tensors.value.tolist(), tensors.end.tolist(), strict=True)
    for row, first, end in contents:
        number = scalar_of(Message(data[first:end]))
        if number is not None:
            numbers[row], is_double[row] = number
            is_known[row] = True
    return numbers, is_known, is_double
