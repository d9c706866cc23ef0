"""Embeddings: the files of TensorBoard's projector."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from visualprof.capture.log.arrays import as_array
from visualprof.capture.log.images import arrange, png, to_many_pixels

CONFIG = "projector_config.pbtxt"
_MAX_CHANNELS = 4
_MAX_SPRITE_PIXELS = 8192  # on a side; browsers accept no larger textures


def write_embedding(
    folder: Path, tag: str, step: int, vectors: Any, labels: Sequence[Any] | None, names: Sequence[str], images: Any
) -> None:
    """Write vectors with their labels and pictures, and add them to the list of embeddings.

    Args:
        folder: Folder of the run.
        tag: Name of the embedding.
        step: The step.
        vectors: (n, width) numbers.
        labels: A label, or a row of labels, per vector; `None` without labels.
        names: Names of the columns of labels, empty for single labels.
        images: (n, channels, height, width) or (n, height, width, channels) pictures, or `None`.

    Raises:
        ValueError: The counts differ, or the pictures are too large together.
    """
    matrix = as_array(vectors)
    if matrix.ndim != 2 or (labels is not None and len(labels) != len(matrix)):
        raise ValueError(f"{'no' if labels is None else len(labels)} labels for vectors of the shape {matrix.shape}")
    below = f"{step:05d}/{quote(tag, safe='').replace('.', '%2E')}"
    (folder / below).mkdir(parents=True, exist_ok=True)
    lines = ("\t".join(map(repr, row)) for row in matrix.astype(float).tolist())
    _replace(folder / below / "tensors.tsv", "".join(f"{line}\n" for line in lines).encode())
    entry = [f"tensor_name: {_quoted(f'{tag}:{step:05d}')}", f"tensor_path: {_quoted(below + '/tensors.tsv')}"]
    if labels is not None:
        rows = [names, *labels] if names else [[label] for label in labels]
        text = "".join("\t".join(_cell(cell) for cell in row) + "\n" for row in rows)
        _replace(folder / below / "metadata.tsv", text.encode("utf-8", "replace"))
        entry.append(f"metadata_path: {_quoted(below + '/metadata.tsv')}")
    if images is not None:
        height, width = _write_sprite(folder / below / "sprite.png", images, len(matrix))
        path = _quoted(below + "/sprite.png")
        size = f"single_image_dim: {width}\n    single_image_dim: {height}"
        entry.append(f"sprite {{\n    image_path: {path}\n    {size}\n  }}")
    text = "embeddings {\n" + "".join(f"  {line}\n" for line in entry) + "}\n"
    config = folder / CONFIG
    before = config.read_text("ascii", "replace") if config.exists() else ""
    if text not in before:
        _replace(config, (before + text).encode("ascii", "replace"))


def _quoted(text: str) -> str:
    """Return a text as protobuf's text format writes it."""
    characters = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in text.encode())
    return f'"{"".join(characters)}"'


def _cell(value: Any) -> str:
    return str(value).replace("\t", " ").replace("\n", " ")


def _write_sprite(path: Path, images: Any, count: int) -> tuple[int, int]:
    """Write the pictures as a square grid, and return the size of a picture."""
    array = as_array(images)
    pixels = to_many_pixels(array, "NCHW" if array.ndim == 4 and array.shape[1] <= _MAX_CHANNELS else "")
    if len(pixels) != count:
        raise ValueError(f"{len(pixels)} pictures for {count} vectors")
    columns = math.ceil(math.sqrt(count))
    height, width = pixels.shape[1:3]
    if max(height, width) * columns > _MAX_SPRITE_PIXELS:
        raise ValueError(f"the pictures together are wider than {_MAX_SPRITE_PIXELS} pixels")
    _replace(path, png(arrange(pixels, columns)))
    return height, width


def _replace(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    os.replace(part, path)
