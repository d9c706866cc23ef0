"""Convert the values of VisualDL's logs to records of event files."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from visualprof.capture.log import curves, hparams, messages
from visualprof.capture.log.embeddings import write_embedding
from visualprof.capture.log.fields import record
from visualprof.capture.log.histograms import raw_histogram
from visualprof.capture.log.scalars import ScalarEncoder
from visualprof.reader.protobuf import Message, ProtobufError
from visualprof.reader.run_data import records
from visualprof.reader.run_data.event_file import EventFile
from visualprof.reader.run_data.rows import UNKNOWN_NS

_PNG_HEAD = struct.Struct(">IIBB")
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # PNG's color type -> channels


def scalar_records(file: EventFile) -> Iterator[bytes]:
    """Yield the records of the scalars of a log, tag by tag."""
    encoder = ScalarEncoder()
    for tag, series in file.series.items():
        step, wall_ns, value = series.points
        for row in zip(value.tolist(), step.tolist(), wall_ns.tolist(), strict=True):
            yield encoder.encode(tag, row[0], row[1], _seconds(row[2]))


def sample_records(file: EventFile, folder: Path, failures: list[str]) -> Iterator[bytes]:
    """Yield the records of all other values of a log.

    Args:
        file: The log.
        folder: Folder for the files of embeddings.
        failures: Receives a sentence per value that cannot be converted.
    """
    with open(file.path, "rb") as source:
        for tag, series in file.series.items():
            samples = series.samples
            rows = zip(*(column.tolist() for column in samples), strict=True)
            for step, wall_ns, field, start, size in rows:
                if field == records.META_DATA:  # the name of the run, which event files do not have
                    continue
                source.seek(start)
                try:
                    content = Message(source.read(size)).message(field)
                    if field == records.EMBEDDINGS:
                        _write_vectors(folder, tag, step, content)
                        continue
                    values = _CONVERTERS[field](tag, content, _seconds(wall_ns))
                except (ProtobufError, ValueError, struct.error) as error:
                    failures.append(f"{tag} at step {step}: {error}")
                    continue
                yield record(messages.event(_seconds(wall_ns), step, values))


def _seconds(wall_ns: int) -> float:
    return 0.0 if wall_ns == UNKNOWN_NS else wall_ns / 1e9


def _image(tag: str, content: Message, wall_s: float) -> list[bytes]:
    del wall_s
    data = bytes(content.content(4))
    width, height, _, color = _PNG_HEAD.unpack_from(data, 16)
    return [messages.image(tag, height, width, _PNG_CHANNELS.get(color, 3), data)]


def _audio(tag: str, content: Message, wall_s: float) -> list[bytes]:
    del wall_s
    numbers = content.real(1), content.number(2), content.number(3)
    return [messages.audio(tag, *numbers, bytes(content.content(4)))]


def _text(tag: str, content: Message, wall_s: float) -> list[bytes]:
    del wall_s
    return [messages.text(f"{tag}/text_summary", content.text(1))]


def _histogram(tag: str, content: Message, wall_s: float) -> list[bytes]:
    del wall_s
    counts, edges = list(content.reals(1, 8)), list(content.reals(2, 8))
    if not counts or len(edges) != len(counts) + 1:
        raise ValueError(f"a histogram with {len(counts)} counts and {len(edges)} edges")
    return [raw_histogram(tag, edges, counts)]


def _curve(encode: Callable[[str, Any], bytes]) -> Callable[[str, Message, float], list[bytes]]:
    """Return a converter of curves. Rates are computed from the counts, because VisualDL's ROC rates are wrong."""

    def convert(tag: str, content: Message, wall_s: float) -> list[bytes]:
        del wall_s
        rows = [list(content.numbers(field)) for field in (1, 2, 3, 4)]
        if not rows[0] or len({len(row) for row in rows}) != 1:
            raise ValueError("a curve with counts of different lengths")
        return [encode(tag, np.array(rows, float))]

    return convert


def _hparams(tag: str, content: Message, wall_s: float) -> list[bytes]:
    del tag
    values = {entry.text(4): _parameter(entry) for entry in content.messages(1)}
    return hparams.values(values, [entry.text(4) for entry in content.messages(2)], {}, wall_s)


def _parameter(entry: Message) -> hparams.Parameter:
    if 3 in entry:
        return entry.text(3)
    return next(entry.reals(2, 8), float(entry.number(1)))


def _write_vectors(folder: Path, tag: str, step: int, content: Message) -> None:
    rows = list(content.messages(1))
    labels = [list(row.texts(1)) for row in rows]
    names = list(content.texts(2))
    if not names and any(len(row) != 1 for row in labels):
        names = [f"label_{i}" for i in range(max(map(len, labels)))]
    vectors = np.array([list(row.reals(2)) for row in rows], float)
    labels_of_rows: list[Any] = [*labels] if names else [row[0] for row in labels]
    write_embedding(folder, tag, step, vectors=vectors, labels=labels_of_rows, names=names, images=None)


_CONVERTERS: dict[int, Callable[[str, Message, float], list[bytes]]] = {
    records.IMAGE: _image,
    records.AUDIO: _audio,
    records.TEXT: _text,
    records.HISTOGRAM: _histogram,
    records.PR_CURVE: _curve(curves.pr_curve),
    records.ROC_CURVE: _curve(curves.roc_curve),
    records.HPARAM: _hparams,
}
