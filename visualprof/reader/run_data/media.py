"""Images, sound and texts. Media are recognized by their first bytes, and never decoded here except PCM sound."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from visualprof.errors import FormatError
from visualprof.messages import msg
from visualprof.reader.run_data import events
from visualprof.reader.run_data.samples import StoredValue
from visualprof.reader.run_data.tensors import tensor_shape
from visualprof.reader.trace import Floats

MAX_PIXELS = 1 << 26
MAX_TEXT_BYTES = 1 << 20
MAX_CELLS = 10_000
_ENCODED = 4  # field of the file in messages of images and sound
_STRINGS = 8  # field of the texts of a tensor
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


class Media(NamedTuple):
    """A file inside a value.

    Attributes:
        content: The bytes of the file.
        label: Description of the file, "" without one.
    """

    content: memoryview
    label: str = ""


class ImageHead(NamedTuple):
    """Type and size of an image, from its first bytes.

    Attributes:
        mime: Media type.
        width: Width in pixels.
        height: Height in pixels.
    """

    mime: str
    width: int
    height: int


class Sound(NamedTuple):
    """Sound of a WAV file.

    Attributes:
        rate_hz: Frames per second.
        channels: Number of channels.
        frames: Number of frames.
        samples: (frames, channels) values from -1 to 1; empty if the encoding is not PCM.
    """

    rate_hz: int
    channels: int
    frames: int
    samples: Floats


class TextGrid(NamedTuple):
    """Texts of a value.

    Attributes:
        rows: Rows of cells; a single cell for a plain text.
        is_cut: Whether the text is longer than `MAX_TEXT_BYTES`.
    """

    rows: list[list[str]]
    is_cut: bool


def images_of(value: StoredValue) -> list[Media]:
    """Return the images of a value."""
    if value.file_kind == "tensorboard" and value.field == events.TENSOR:
        return [Media(content) for content in list(value.body.contents(_STRINGS))[2:]]  # width and height come first
    return [Media(value.body.content(_ENCODED))]


def sounds_of(value: StoredValue) -> list[Media]:
    """Return the sound files of a value."""
    if value.file_kind == "tensorboard" and value.field == events.TENSOR:
        texts = list(value.body.contents(_STRINGS))
        if len(tensor_shape(value.body)) < 2:
            return [Media(content) for content in texts]
        pairs = zip(texts[::2], texts[1::2], strict=False)
        return [Media(content, bytes(label).decode("utf-8", "replace")) for content, label in pairs]
    return [Media(value.body.content(_ENCODED))]


def texts_of(value: StoredValue) -> TextGrid:
    """Return the texts of a value."""
    if value.file_kind == "visualdl":
        return _grid([value.body.content(1)], 1)
    shape = tensor_shape(value.body)
    return _grid(list(value.body.contents(_STRINGS))[:MAX_CELLS], max(shape[-1], 1) if len(shape) > 1 else 1)


def _grid(contents: list[memoryview], columns: int) -> TextGrid:
    """Return texts as rows of a number of columns, cut after `MAX_TEXT_BYTES`."""
    left, cells = MAX_TEXT_BYTES, list[str]()
    for content in contents:
        cells.append(bytes(content[: max(left, 0)]).decode("utf-8", "replace"))
        left -= len(content)
    return TextGrid([cells[i : i + columns] for i in range(0, len(cells), columns)], left < 0)


def image_head(content: memoryview) -> ImageHead:
    """Return the type and the size of an image without decoding it.

    Raises:
        FormatError: The bytes are not a PNG, JPEG, GIF or WebP image.
    """
    data = bytes(content[:64])
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return ImageHead("image/png", *struct.unpack_from(">II", data, 16))
        if data[:4] == b"GIF8":
            return ImageHead("image/gif", *struct.unpack_from("<HH", data, 6))
        if data[:3] == b"\xff\xd8\xff":
            return ImageHead("image/jpeg", *_jpeg_size(content))
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return ImageHead("image/webp", *_webp_size(data))
    except (struct.error, IndexError):
        pass
    raise FormatError(
        msg("reader.not_an_image", "the value is not a PNG, JPEG, GIF or WebP image"),
        msg("reader.other_media_not_shown", "other media are not shown, because browsers may run scripts in them"),
    )


def _jpeg_size(content: memoryview) -> tuple[int, int]:
    """Return the size in the first frame header (SOF0 to SOF15, except DHT, JPG and DAC)."""
    offset = 2
    while content[offset] == 0xFF:
        marker = content[offset + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", content, offset + 5)
            return width, height
        offset += 2 + struct.unpack_from(">H", content, offset + 2)[0]
    raise IndexError


def _webp_size(data: bytes) -> tuple[int, int]:
    chunk = data[12:16]
    if chunk == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if chunk == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF


def read_sound(content: memoryview) -> Sound:
    """Return the sound of a WAV file.

    Raises:
        FormatError: The bytes are not a WAV file.
    """
    data = content
    if bytes(data[:4]) != b"RIFF" or bytes(data[8:12]) != b"WAVE":
        raise FormatError(msg("reader.not_a_wave_file", "the value is not a WAV file"))
    offset, layout = 12, (0, 0, 0, 0)
    while offset + 8 <= len(data):
        name, size = bytes(data[offset : offset + 4]), struct.unpack_from("<I", data, offset + 4)[0]
        chunk = data[offset + 8 : offset + 8 + size]
        if name == b"fmt " and len(chunk) >= 16:
            encoding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
            if encoding == _EXTENSIBLE and len(chunk) >= 26:
                encoding = struct.unpack_from("<H", chunk, 24)[0]
            layout = encoding, channels, rate, bits
        if name == b"data" and layout[1]:
            return _decode(chunk, *layout)
        offset += 8 + size + size % 2
    raise FormatError(msg("reader.not_a_wave_file", "the value is not a WAV file"))


def _decode(data: memoryview, encoding: int, channels: int, rate: int, bits: int) -> Sound:
    width = max(bits // 8, 1)
    frames = len(data) // (width * channels)
    raw = np.frombuffer(data[: frames * width * channels], np.uint8)
    if encoding == _PCM and width == 1:
        values = (raw.astype(np.float64) - 128) / 128
    elif encoding == _PCM and width in (2, 3, 4):
        padded = np.zeros((frames * channels, 4), np.uint8)
        padded[:, 4 - width :] = raw.reshape(-1, width)
        values = padded.view("<i4").ravel() / 2.0**31
    elif encoding == _FLOAT and width in (4, 8):
        values = raw.view(f"<f{width}").astype(np.float64)
    else:
        values = np.zeros(0)
    return Sound(rate, channels, frames, values.reshape(-1, channels))
