"""Join scanned parts, and rows from the scanner and the decoder, into one document."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.chrome.document import ArgRows, Document, Kind
from visualprof.reader.chrome.numbering import merge_equal_names, number_flow_ids, renumber_by_appearance
from visualprof.reader.chrome.values import display_text, label
from visualprof.reader.native.scanner import TEXT, Part, SharedWords, join
from visualprof.reader.source import DECODE_ERRORS
from visualprof.reader.trace.types import Ids, Ints, Values

Names = list[tuple[str, ...]]


def join_scanned_parts(parts: Sequence[Part]) -> Document:
    """Return the rows of at least one scanned part, in the order of the file, as a document."""
    fields = parts[0].reader.fields
    shared = SharedWords(list({id(part.reader): part.reader for part in parts}.values()))
    columns = join(parts, parts[0].reader.column_types)
    *args, (flow_rows, flows), (sample_rows, series), (_, sampled) = columns.columns
    kind, kinds = _label_names(shared, columns.kind, shared.parts(0))
    thread, threads = _label_names(shared, columns.thread, shared.parts(1))
    flows, flow_names = _resolve_flow_ids(shared, flows)
    series, titles = _label_words(shared, series)
    ids, order = renumber_by_appearance(
        [values for (_, values), type_ in zip(args, fields.types.values(), strict=True) if type_ == TEXT],
        len(shared),
        known_count=1,
    )
    texts = ["", *_value_texts(shared, order[1:])]
    if len(set(texts)) < len(texts):
        ids, texts = merge_equal_names(ids, [None, *texts[1:]], fixed=1)
    next_ids = iter(ids)
    return Document(
        kind=kind,
        thread=thread,
        ts=columns.ts,
        dur=columns.dur,
        kinds=[Kind(*words) for words in kinds],
        threads=cast("list[tuple[str, str]]", threads),
        texts=[text or "" for text in texts],
        args={
            name: ArgRows(rows, next(next_ids) if type_ == TEXT else values, type_ == TEXT)
            for (name, type_), (rows, values) in zip(fields.types.items(), args, strict=True)
        },
        flow_rows=flow_rows,
        flow_ids=flows,
        flow_names=flow_names,
        sample_rows=sample_rows,
        sample_series=series,
        sample_values=sampled,
        series=titles,
        head={},
        truncated=False,
        warnings=[],
    )


def _merge_column(
    rows_of_document: Sequence[Ints], rows: Sequence[Ints], values: Sequence[Values], names: Sequence[Sequence[Any]]
) -> tuple[Ints, Values]:
    """Merge one column of several documents; return the rows that have a value, and the values.

    Args:
        rows_of_document: Rows of each document in the merged one.
        rows: Rows of each document that have a value.
        values: The values.
        names: Names that the values of each document index; empty for plain values.
    """
    numbers = np.concatenate(
        [document_rows[rows_with_value] for document_rows, rows_with_value in zip(rows_of_document, rows, strict=True)]
    )
    offsets = np.cumsum([0, *map(len, names)])
    shifted = [v + v.dtype.type(offset) for v, offset in zip(values, offsets, strict=False)]
    order = np.argsort(numbers, kind="stable")
    return numbers[order], np.concatenate(shifted)[order]


def interleave(documents: Sequence[Document], turns: Sequence[tuple[int, int]]) -> Document:
    """Return the rows of several documents as one.

    Args:
        documents: The documents.
        turns: Which document is next, and how many of its rows follow.
    """
    source = np.repeat([turn for turn, _ in turns], [rows for _, rows in turns])
    rows_of_document = [np.flatnonzero(source == i) for i in range(len(documents))]
    merge = partial(_merge_column, rows_of_document)
    all_rows, no_names = [np.arange(len(own)) for own in rows_of_document], [()] * len(rows_of_document)
    kinds, threads = [d.kinds for d in documents], [d.threads for d in documents]
    flows, texts = [d.flow_names for d in documents], [[None, *d.texts[1:]] for d in documents]
    (kind,), all_kinds = merge_equal_names([merge(all_rows, [d.kind for d in documents], kinds)[1]], chain(*kinds))
    (thread,), all_places = merge_equal_names(
        [merge(all_rows, [d.thread for d in documents], threads)[1]], chain(*threads)
    )
    names_before = np.cumsum([0, *map(len, flows[:-1])])
    ids = [np.where(d.flow_ids < 0, d.flow_ids - n, d.flow_ids) for d, n in zip(documents, names_before, strict=True)]
    flow_rows, flow = merge([d.flow_rows for d in documents], ids, no_names)
    (index,), flow_names = merge_equal_names([-1 - flow[flow < 0]], chain(*flows))
    flow[flow < 0] = -1 - index.astype(np.int64)
    args = {
        name: (
            *merge(
                [d.args[name].rows for d in documents],
                [d.args[name].values for d in documents],
                texts if arg.text else no_names,
            ),
            arg.text,
        )
        for name, arg in documents[0].args.items()
    }
    texts_of, strings = merge_equal_names([values for _, values, text in args.values() if text], chain(*texts), fixed=1)
    next_ids = iter(texts_of)
    rows, titles = [d.sample_rows for d in documents], [d.series for d in documents]
    sample_rows, series = merge(rows, [d.sample_series for d in documents], titles)
    (series,), series_names = merge_equal_names([series], chain(*titles))
    return Document(
        kind=kind,
        thread=thread,
        ts=merge(all_rows, [d.ts for d in documents], no_names)[1],
        dur=merge(all_rows, [d.dur for d in documents], no_names)[1],
        kinds=all_kinds,
        threads=all_places,
        texts=[text or "" for text in strings],
        args={
            name: ArgRows(rows, next(next_ids) if text else values, text) for name, (rows, values, text) in args.items()
        },
        flow_rows=flow_rows,
        flow_ids=flow,
        flow_names=flow_names,
        sample_rows=sample_rows,
        sample_series=series,
        sample_values=merge(rows, [d.sample_values for d in documents], no_names)[1],
        series=series_names,
        head={},
        truncated=False,
        warnings=[],
    )


def _label_names(shared: SharedWords, ids: Ids, parts: Ids) -> tuple[Ids, Names]:
    """Return names numbered by first appearance, and the names as tuples of labels.

    `parts` has the words of each name, (n, k).
    """
    (ids,), order = renumber_by_appearance([ids], len(parts))
    words, word_index = cast("tuple[Ids, Ints]", np.unique(parts[order], return_inverse=True))
    labels = _labels(shared.words(words)[0])
    label_index: Ints = word_index.reshape(-1, parts.shape[1])
    columns = [_list(label_index[:, k]) for k in range(parts.shape[1])]
    names: Names = [*zip(*(map(labels.__getitem__, column) for column in columns), strict=True)]
    if len(set(names)) < len(names):  # "a" and "\u0061", 7 and "7"
        (ids,), names = merge_equal_names([ids], names)
    return ids, names


def _resolve_flow_ids(shared: SharedWords, ids: Ints) -> tuple[Ints, list[str]]:
    """Return the flow ids of a document. An id below 0 is the negative number of a word. `ids` is changed in place."""
    is_word = ids < 0
    words, labels = _label_words(shared, (-ids[is_word]).astype(np.int32))
    ids[is_word], names = number_flow_ids(words, labels)
    return ids, names


def _label_words(shared: SharedWords, words: Ids) -> tuple[Ids, list[str]]:
    """Return names that are single words, like `_label_names`."""
    (ids,), order = renumber_by_appearance([words], len(shared))
    labels = _labels(shared.words(order)[0])
    if len(set(labels)) < len(labels):
        (ids,), labels = merge_equal_names([ids], labels)
    return ids, labels


def _labels(text: bytes) -> list[str]:
    return [value if type(value) is str else label(value) for value in msgspec.json.decode(text)]


def _value_texts(shared: SharedWords, words: Ids) -> list[str]:
    """Return values as display texts, like `display_text`; all strings are decoded at once."""
    text, ends = shared.words(words)
    values: list[Any]
    try:
        values = msgspec.json.decode(text)
    except DECODE_ERRORS:  # a number that is too large for the decoder
        values = [None] * len(words)
    for i, value in enumerate(values):
        if type(value) is not str:
            values[i] = display_text(text[ends[i - 1] + 1 if i else 1 : ends[i]])
    return values


def _list(column: NDArray[Any]) -> list[Any]:
    return cast("list[Any]", column.tolist())
