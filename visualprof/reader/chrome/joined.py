"""Columns of scanned parts, and rows that two readers took in turns, as one document."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from visualprof.reader.chrome.document import ArgRows, Document, Kind
from visualprof.reader.chrome.numbering import ids_of, named, renumbered
from visualprof.reader.chrome.values import label, shown
from visualprof.reader.native.scanner import TEXT, Part, Shared, join
from visualprof.reader.source import DECODE_ERRORS
from visualprof.reader.trace.types import Ids, Ints, Values

Names = list[tuple[str, ...]]


def scanned_document(parts: Sequence[Part]) -> Document:
    """The rows that were scanned. parts: at least one, in the order of the file."""
    fields = parts[0].reader.fields
    shared = Shared(list({id(part.reader): part.reader for part in parts}.values()))
    columns = join(parts, parts[0].reader.column_types)
    *args, (flow_rows, flows), (sample_rows, series), (_, sampled) = columns.columns
    kind, kinds = _labelled(shared, columns.kind, shared.parts(0))
    place, places = _labelled(shared, columns.place, shared.parts(1))
    flows, flow_names = _identified(shared, flows)
    series, titles = _titled(shared, series)
    ids, order = renumbered(
        [values for (_, values), type_ in zip(args, fields.types.values(), strict=True) if type_ == TEXT],
        len(shared),
        known=1,
    )
    texts = ["", *_value_texts(shared, order[1:])]
    if len(set(texts)) < len(texts):
        ids, texts = named(ids, [None, *texts[1:]], known=1)
    next_ids = iter(ids)
    return Document(
        kind=kind,
        place=place,
        ts=columns.ts,
        dur=columns.dur,
        kinds=[Kind(*words) for words in kinds],
        places=cast("list[tuple[str, str]]", places),
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


def interleaved(documents: Sequence[Document], turns: Sequence[tuple[int, int]]) -> Document:
    """Rows of several documents as one. turns: which of them is next, and how many of its rows."""
    which = np.repeat([turn for turn, _ in turns], [rows for _, rows in turns])
    at = [np.flatnonzero(which == i) for i in range(len(documents))]

    def merged(rows: Sequence[Ints], values: Sequence[Values], names: Sequence[Sequence[Any]]) -> tuple[Ints, Values]:
        """One column. names: what each document's values are numbers of; none where they are of nothing."""
        numbers = np.concatenate([own[some] for own, some in zip(at, rows, strict=True)])
        offsets = np.cumsum([0, *map(len, names)])
        shifted = [v + v.dtype.type(offset) for v, offset in zip(values, offsets, strict=False)]
        order = np.argsort(numbers, kind="stable")
        return numbers[order], np.concatenate(shifted)[order]

    every, none = [np.arange(len(own)) for own in at], [()] * len(at)
    kinds, places = [d.kinds for d in documents], [d.places for d in documents]
    flows = [d.flow_names for d in documents]
    texts = [[None, *d.texts[1:]] for d in documents]
    (kind,), all_kinds = named([merged(every, [d.kind for d in documents], kinds)[1]], chain(*kinds))
    (place,), all_places = named([merged(every, [d.place for d in documents], places)[1]], chain(*places))
    before = np.cumsum([0, *map(len, flows[:-1])])
    ids = [np.where(d.flow_ids < 0, d.flow_ids - n, d.flow_ids) for d, n in zip(documents, before, strict=True)]
    flow_rows, flow = merged([d.flow_rows for d in documents], ids, none)
    (index,), flow_names = named([-1 - flow[flow < 0]], chain(*flows))
    flow[flow < 0] = -1 - index.astype(np.int64)
    args = {
        name: (
            *merged(
                [d.args[name].rows for d in documents],
                [d.args[name].values for d in documents],
                texts if arg.text else none,
            ),
            arg.text,
        )
        for name, arg in documents[0].args.items()
    }
    texts_of, strings = named([values for _, values, text in args.values() if text], chain(*texts), known=1)
    next_ids = iter(texts_of)
    rows, titles = [d.sample_rows for d in documents], [d.series for d in documents]
    sample_rows, series = merged(rows, [d.sample_series for d in documents], titles)
    (series,), series_names = named([series], chain(*titles))
    return Document(
        kind=kind,
        place=place,
        ts=merged(every, [d.ts for d in documents], none)[1],
        dur=merged(every, [d.dur for d in documents], none)[1],
        kinds=all_kinds,
        places=all_places,
        texts=[text or "" for text in strings],
        args={
            name: ArgRows(rows, next(next_ids) if text else values, text) for name, (rows, values, text) in args.items()
        },
        flow_rows=flow_rows,
        flow_ids=flow,
        flow_names=flow_names,
        sample_rows=sample_rows,
        sample_series=series,
        sample_values=merged(rows, [d.sample_values for d in documents], none)[1],
        series=series_names,
        head={},
        truncated=False,
        warnings=[],
    )


def _labelled(shared: Shared, ids: Ids, parts: Ids) -> tuple[Ids, Names]:
    """Numbers by first appearance, and the names: tuples of labels. parts: the words of each name, (n, k)."""
    (ids,), order = renumbered([ids], len(parts))
    words, places = cast("tuple[Ids, Ints]", np.unique(parts[order], return_inverse=True))
    labels = _labels(shared.words(words)[0])
    at: Ints = places.reshape(-1, parts.shape[1])
    columns = [_list(at[:, k]) for k in range(parts.shape[1])]
    names: Names = [*zip(*(map(labels.__getitem__, column) for column in columns), strict=True)]
    if len(set(names)) < len(names):  # "a" and "\u0061", 7 and "7"
        (ids,), names = named([ids], names)
    return ids, names


def _identified(shared: Shared, ids: Ints) -> tuple[Ints, list[str]]:
    """Ids of a document. ids: themselves, or less than 0: minus a word. They are changed."""
    other = ids < 0
    words, labels = _titled(shared, (-ids[other]).astype(np.int32))
    ids[other], names = ids_of(words, labels)
    return ids, names


def _titled(shared: Shared, words: Ids) -> tuple[Ids, list[str]]:
    """As `_labelled`, of names that are one word each."""
    (ids,), order = renumbered([words], len(shared))
    labels = _labels(shared.words(order)[0])
    if len(set(labels)) < len(labels):
        (ids,), labels = named([ids], labels)
    return ids, labels


def _labels(text: bytes) -> list[str]:
    return [value if type(value) is str else label(value) for value in msgspec.json.decode(text)]


def _value_texts(shared: Shared, words: Ids) -> list[str]:
    """As `shown`, all strings among them at once."""
    text, ends = shared.words(words)
    values: list[Any]
    try:
        values = msgspec.json.decode(text)
    except DECODE_ERRORS:  # a number that is too large for it
        values = [None] * len(words)
    for i, value in enumerate(values):
        if type(value) is not str:
            values[i] = shown(text[ends[i - 1] + 1 if i else 1 : ends[i]])
    return values


def _list(column: NDArray[Any]) -> list[Any]:
    return cast("list[Any]", column.tolist())
