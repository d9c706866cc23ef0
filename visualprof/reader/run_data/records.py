"""Parse the records of VisualDL: `Record` messages (PaddlePaddle/VisualDL, visualdl/proto/record.proto)."""

from __future__ import annotations

import numpy as np

from visualprof.reader.fields import Fields, parse_fields
from visualprof.reader.run_data.rows import UNKNOWN_NS, ParsedRecords, ValueRows, group_rows
from visualprof.reader.run_data.texts import number_texts
from visualprof.reader.trace.types import Floats, Ids, Ints

STEP, TAG, TIMESTAMP, VALUE, TAG_VALUE = 1, 2, 3, 4, 14
IMAGE, AUDIO, EMBEDDINGS, HISTOGRAM, PR_CURVE, META_DATA, ROC_CURVE, TEXT, HPARAM = 5, 6, 7, 8, 9, 10, 11, 12, 13
_CONTENT_FIELDS = (IMAGE, AUDIO, EMBEDDINGS, HISTOGRAM, PR_CURVE, META_DATA, ROC_CURVE, TEXT, HPARAM)
_MAX_SECONDS = 2_000_000_000  # larger times are milliseconds
_MAX_MS = 9 * 10**12


def parse_records(data: bytes, start: Ints, size: Ints) -> ParsedRecords:
    """Return the logged values of records at byte ranges of `data`.

    Each line of `add_scalars` is a separate series, `TAG/LINE`.
    """
    records, damaged = parse_fields(data, start, start + size)
    values = records.with_number(1, texts=True)
    fields, damaged_values = parse_fields(data, values.value, values.end)
    count = len(values.value)
    field, number = np.zeros(count, np.int32), np.full(count, np.nan)
    for content in _CONTENT_FIELDS:
        field[fields.with_number(content, texts=True).message] = content
    plain = fields.with_number(VALUE)
    field[plain.message] = VALUE
    number[plain.message] = (plain.value & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
    names = fields.with_number(TAG, texts=True)
    tag = np.full(count, -1, np.int32)
    tag[names.message], tags = number_texts(data, names.value, names.size)
    lines = fields.with_number(TAG_VALUE, texts=True)
    lines = lines.select(tag[lines.message] >= 0)
    if len(lines.value):
        _add_lines(data, lines, tags, tag, number)
        field[lines.message] = VALUE
    rows = ValueRows(
        step=fields.last_values(STEP, count),
        wall_ns=_wall_times(fields.last_values(TIMESTAMP, count)),
        tag=tag,
        field=field,
        number=number,
        bits=np.zeros(count, np.uint8),
        start=values.value,
        size=values.size,
    )
    return group_rows(rows, tags, [], damaged + damaged_values)


def _add_lines(data: bytes, lines: Fields, tags: list[bytes], tag: Ids, number: Floats) -> None:
    """Set tag and number of rows that hold a line of `add_scalars`, and append the new tags."""
    fields, _ = parse_fields(data, lines.value, lines.end)
    names = fields.with_number(1, texts=True)
    line = np.zeros(len(lines.value), np.int64)
    numbers, texts = number_texts(data, names.value, names.size)
    line[names.message] = numbers + 1  # 0 for a line without a name
    number[lines.message] = fields.last_values(2, len(lines.value)).astype(np.uint32).view(np.float32)
    pairs, index = np.unique(tag[lines.message] * (len(texts) + 1) + line, return_inverse=True)
    pair_list: list[int] = pairs.tolist()
    added: list[bytes] = []
    for pair in pair_list:
        main, named = divmod(pair, len(texts) + 1)
        added.append(tags[main] + b"/" + texts[named - 1] if named else tags[main])
    tag[lines.message] = index + len(tags)
    tags.extend(added)


def _wall_times(stored: Ints) -> Ints:
    """Return times, in milliseconds or seconds, as nanoseconds."""
    is_known = (stored > 0) & (stored < _MAX_MS)
    unit_ns = np.where(stored < _MAX_SECONDS, 10**9, 10**6)
    return np.where(is_known, np.where(is_known, stored, 0) * unit_ns, UNKNOWN_NS)
