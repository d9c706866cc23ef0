"""Images as PNG, without an imaging library."""

from __future__ import annotations

import io
import math
import struct
import sys
import zlib
from typing import Any

from visualprof.capture.log.arrays import as_array, numpy

_COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # channels -> the number that PNG uses
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEAD = struct.Struct(">IIBB3s")  # the last three are 0
_DEPTH = 8  # bits per channel
_SUB_FILTER = 1  # stores the difference from the pixel on the left
_COMPRESSION = 3
_MAX_UNIT = 2.0  # floats above this are pixels of 0 to 255
_COLUMNS = 8


def to_pixels(image: Any, layout: str = "") -> Any:
    """Return an image as uint8, (height, width, channels).

    Floats are brightness from 0 to 1, unless a value is above 2. Other numbers are pixels from 0 to 255.

    Args:
        image: An array with 2 or 3 dimensions.
        layout: Order of the dimensions, such as `CHW`; "" to infer it from the shape.

    Raises:
        ValueError: The array is not an image.
    """
    return _to_bytes(_reorder(as_array(image), layout, "HWC"))


def to_many_pixels(images: Any, layout: str = "") -> Any:
    """Return images as uint8, (count, height, width, channels)."""
    return _to_bytes(_reorder(as_array(images), layout, "NHWC"))


def _reorder(array: Any, layout: str, target: str) -> Any:
    layout = layout.upper() or _infer(array, target)
    if len(layout) != array.ndim or set(layout) - set(target):
        raise ValueError(f"an image of the shape {array.shape} has no layout {layout!r}")
    for name in set(target) - set(layout):
        array, layout = array[..., None], layout + name
    array = array.transpose([layout.index(name) for name in target])
    if array.shape[-1] not in _COLOR_TYPES or not array.size:
        raise ValueError(f"an image has 1 to 4 channels, not {array.shape[-1]}")
    return array


def _infer(array: Any, target: str) -> str:
    """Return the layout of an array: the channels are the last dimension, unless only the first fits."""
    many = target[:-3]
    if array.ndim == len(target) - 1:
        return many + "HW"
    is_last = array.ndim == len(target) and array.shape[-1] in _COLOR_TYPES
    is_first = array.ndim == len(target) and array.shape[len(many)] in _COLOR_TYPES
    return many + ("CHW" if is_first and not is_last else "HWC")


def _to_bytes(array: Any) -> Any:
    np = numpy()
    if array.dtype == np.uint8:
        return array.copy()
    if array.dtype == bool:
        return array.astype(np.uint8) * 255
    scaled = np.nan_to_num(array.astype(np.float32))
    if array.dtype.kind == "f" and scaled.max() <= _MAX_UNIT:
        scaled = scaled * 255
    return scaled.clip(0, 255).astype(np.uint8)


def arrange(pixels: Any, columns: int = _COLUMNS) -> Any:
    """Return images of equal size as one image, row by row.

    Args:
        pixels: (count, height, width, channels) uint8.
        columns: Number of columns; fewer for fewer images.
    """
    np = numpy()
    count, height, width, channels = pixels.shape
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    grid = np.zeros((rows * columns, height, width, channels), np.uint8)
    grid[:count] = pixels
    grid = grid.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return grid.reshape(rows * height, columns * width, channels)


def png(pixels: Any) -> bytes:
    """Return an image, (height, width, channels) uint8, as PNG."""
    np = numpy()
    height, width, channels = pixels.shape
    rows = np.full((height, 1 + width * channels), _SUB_FILTER, np.uint8)
    flat = pixels.reshape(height, width * channels)
    rows[:, 1:] = flat
    rows[:, 1 + channels :] -= flat[:, :-channels]
    head = _HEAD.pack(width, height, _DEPTH, _COLOR_TYPES[channels], b"")
    data = zlib.compress(rows.tobytes(), _COMPRESSION)
    return _SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def figure_png(figure: Any, close: bool) -> tuple[bytes, int, int]:
    """Return a figure of Matplotlib as PNG, its height and its width.

    Args:
        figure: The figure.
        close: Whether to close the figure.
    """
    out = io.BytesIO()
    figure.savefig(out, format="png")
    pyplot = sys.modules.get("matplotlib.pyplot")
    if close and pyplot is not None:
        pyplot.close(figure)
    data = out.getvalue()
    width, height = struct.unpack_from(">II", data, 16)
    return data, height, width
