"""Embeddings: vectors with labels, from VisualDL's records or the files of TensorBoard's projector.

Source: tensorflow/tensorboard, plugins/projector/projector_config.proto
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visualprof.errors import FormatError, SourceError
from visualprof.messages import msg
from visualprof.reader.protobuf import ProtobufError
from visualprof.reader.run_data.run import RunData
from visualprof.reader.run_data.samples import SampleSeries, StoredValue

Vectors = NDArray[np.float32]
MAX_POINTS = 20_000
MAX_FILE_BYTES = 1 << 28
_CONFIG_NAME = "projector_config.pbtxt"
_MAX_CONFIG_BYTES = 1 << 20
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_TOKEN = re.compile(r'(\w+)\s*(?::\s*(?:"((?:[^"\\]|\\.)*)"|([-\w.]+))|(\{))|(\})')


class Embedding(NamedTuple):
    """Vectors with labels.

    Attributes:
        vectors: (n, d) vectors.
        header: Names of the label columns.
        labels: Labels of each point, a text per name.
        total: Points in the file; `vectors` has the first `MAX_POINTS`.
    """

    vectors: Vectors
    header: list[str]
    labels: list[list[str]]
    total: int


class Sprite(NamedTuple):
    """An image with a picture per point, row by row.

    Attributes:
        path: The file.
        width: Width of a picture in pixels.
        height: Height of a picture in pixels.
    """

    path: str
    width: int
    height: int


class EmbeddingSource(NamedTuple):
    """The place of an embedding.

    Attributes:
        line: The line.
        tag: Name of the embedding.
        step: The step, `None` if unknown.
        series: The values and the row, for VisualDL.
        row: Row of `series`.
        tensor_path: File of the vectors, for the projector.
        metadata_path: File of the labels, "" without labels.
        sprite: The pictures, `None` without any.
    """

    line: str
    tag: str
    step: int | None
    series: SampleSeries | None = None
    row: int = 0
    tensor_path: str = ""
    metadata_path: str = ""
    sprite: Sprite | None = None

    @property
    def version(self) -> tuple[object, ...]:
        """Changes with the content."""
        if self.series is not None:
            file = self.series.files[int(self.series.file[self.row])]
            return (file.path, *(int(column[self.row]) for column in self.series.location))
        status = os.stat(self.tensor_path)
        return self.tensor_path, status.st_mtime_ns, status.st_size

    def load(self) -> Embedding:
        """Return the embedding.

        Raises:
            SourceError: A file cannot be read or is too large.
            FormatError: The content is damaged.
        """
        if self.series is not None:
            return self.series.decode(self.row, _parse_embedding)
        return _read_files(self.tensor_path, self.metadata_path)


def list_embeddings(data: RunData) -> list[EmbeddingSource]:
    """Return the embeddings of a run, sorted by line, name and step."""
    logged = [
        EmbeddingSource(series.line, series.tag, step, series=series, row=row)
        for series in data.samples(("embedding",))
        for row, step in enumerate(series.step.tolist())
    ]
    files = [source for line, folder in data.folders() for source in _projector_files(line, Path(folder))]
    return sorted([*logged, *files], key=lambda source: (source.line, source.tag, source.step or 0))


def _projector_files(line: str, folder: Path) -> Iterator[EmbeddingSource]:
    """Yield the embeddings that the configuration of the projector names; files outside of the folder are ignored."""
    config = folder / _CONFIG_NAME
    try:
        if config.stat().st_size > _MAX_CONFIG_BYTES:
            return
        text = config.read_text("utf-8", "replace")
    except OSError:
        return
    for values, sizes in _parse_config(text):
        tensor, labels, image = (
            _path_inside(folder, values.get(name, "")) for name in ("tensor_path", "metadata_path", "image_path")
        )
        if not tensor:
            continue
        name, _, step = values.get("tensor_name", "").rpartition(":")
        is_step = step.isdecimal() and name != ""
        yield EmbeddingSource(
            line=line,
            tag=name if is_step else values.get("tensor_name", ""),
            step=int(step) if is_step else None,
            tensor_path=tensor,
            metadata_path=labels,
            sprite=Sprite(image, *sizes) if image and len(sizes) == 2 and min(sizes) > 0 else None,
        )


def _parse_config(text: str) -> Iterator[tuple[dict[str, str], list[int]]]:
    """Yield the settings of each embedding and the size of its pictures."""
    depth, values, sizes = 0, dict[str, str](), list[int]()
    for match in _TOKEN.finditer(text):
        key, quoted, plain, opens, closes = match.groups()
        if opens:
            depth += 1
        elif closes:
            depth -= 1
            if depth == 0:
                yield values, sizes
                values, sizes = {}, []
        elif key == "single_image_dim" and plain and plain.isdecimal():
            sizes.append(int(plain))
        elif quoted is not None:
            values.setdefault(key, _unescape(quoted))


def _unescape(text: str) -> str:
    """Return the content of a quoted text. Protobuf writes other characters than ASCII as octal bytes."""

    def replace(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8) & 255]) if code[0] in b"01234567" else _ESCAPED.get(code, code)

    return _ESCAPE.sub(replace, text.encode("utf-8", "replace")).decode("utf-8", "replace")


def _path_inside(folder: Path, name: str) -> str:
    """Return a path inside the folder, "" for others."""
    if not name or "\0" in name:
        return ""
    path, root = (folder / name).resolve(), folder.resolve()
    return str(path) if path.is_relative_to(root) and path.is_file() else ""


def _read_text(path: str) -> str:
    try:
        if os.path.getsize(path) > MAX_FILE_BYTES:
            problem = msg(
                "reader.embedding_too_large", f"{Path(path).name} is larger than {MAX_FILE_BYTES >> 20:,} MiB"
            )
            raise SourceError(problem)
        return Path(path).read_text("utf-8", "replace")
    except OSError as error:
        raise SourceError(
            msg("reader.cannot_read_run_data", f"{Path(path).name} cannot be read: {error.strerror}")
        ) from error


def _read_files(tensor_path: str, metadata_path: str) -> Embedding:
    lines = [line for line in _read_text(tensor_path).splitlines() if line.strip()]
    rows = [line.split("\t") for line in lines[:MAX_POINTS]]
    if len({len(row) for row in rows}) > 1:
        raise FormatError(msg("reader.vectors_differ", f"{Path(tensor_path).name}: the vectors have different sizes"))
    try:
        vectors = np.array(rows, np.float32)
    except ValueError as error:
        raise FormatError(
            msg("reader.vectors_no_numbers", f"{Path(tensor_path).name} has a value that is not a number")
        ) from error
    labels = [line.split("\t") for line in _read_text(metadata_path).splitlines()] if metadata_path else []
    # As in the projector: the first line is a header if there are several columns.
    header = labels.pop(0) if labels and len(labels[0]) > 1 else [""] if labels else []
    labels = [(row + [""] * len(header))[: len(header)] for row in labels[: len(vectors)]]
    labels += [[""] * len(header)] * (len(vectors) - len(labels))
    return Embedding(vectors.reshape(len(rows), -1), header, labels, len(lines))


def _parse_embedding(value: StoredValue) -> Embedding:
    points = list(value.body.messages(1))
    vectors = [list(point.reals(2)) for point in points[:MAX_POINTS]]
    if len({len(vector) for vector in vectors}) > 1:
        raise ProtobufError("vectors of different sizes")
    header = list(value.body.texts(2))
    labels = [(list(point.texts(1)) + [""] * len(header))[: len(header) or 1] for point in points[:MAX_POINTS]]
    return Embedding(np.array(vectors, np.float32).reshape(len(vectors), -1), header or [""], labels, len(points))
