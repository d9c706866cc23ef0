"""Encode the messages of event files: tensorflow/tensorboard, compat/proto/event.proto and summary.proto.

A *value* is a message `Summary.Value`: its tag, its content, and the plugin that shows it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from visualprof.capture.log.fields import content, double, integer, single

FLOAT, DOUBLE, STRING = 1, 2, 7
_WRITER = "visualprof.capture.log.writer"
_SESSION_START = 1


def event(wall_s: float, step: int, values: Sequence[bytes]) -> bytes:
    """Return an event with logged values."""
    return double(1, wall_s) + integer(2, step) + content(5, b"".join(content(1, value) for value in values))


def file_head(wall_s: float) -> bytes:
    """Return the first event of a file."""
    return double(1, wall_s) + content(3, "brain.Event:2") + content(10, content(1, _WRITER))


def session_start(wall_s: float, step: int) -> bytes:
    """Return the event of a restart, which replaces the values from a step on."""
    return double(1, wall_s) + integer(2, step) + content(7, integer(1, _SESSION_START))


def metadata(plugin: str, settings: bytes = b"") -> bytes:
    """Return the field of a value that names its plugin."""
    settings_field = content(2, settings) if settings else b""
    return content(9, content(1, content(1, plugin) + settings_field))


def double_scalar(tag: str, number: float) -> bytes:
    """Return the value of a scalar of 64 bits."""
    tensor = integer(1, DOUBLE) + content(2, b"") + content(4, struct.pack("<d", number))
    return content(1, tag) + content(8, tensor) + metadata("scalars")


def image(tag: str, height: int, width: int, channels: int, encoded: bytes) -> bytes:
    """Return the value of an image."""
    size = integer(1, height) + integer(2, width) + integer(3, channels)
    return content(1, tag) + content(4, size + content(4, encoded))


def audio(tag: str, rate: float, channels: int, frames: int, encoded: bytes) -> bytes:
    """Return the value of a sound in the format WAV."""
    size = single(1, rate) + integer(2, channels) + integer(3, frames)
    return content(1, tag) + content(6, size + content(4, encoded) + content(5, "audio/wav"))


def text(tag: str, words: str | bytes, plugin: str = "text") -> bytes:
    """Return the value of a text."""
    tensor = integer(1, STRING) + content(2, content(2, integer(1, 1))) + content(8, words)
    return content(1, tag) + content(8, tensor) + metadata(plugin)


def float_matrix(tag: str, shape: tuple[int, int], raw: bytes, plugin: str, settings: bytes) -> bytes:
    """Return the value of a matrix of little-endian 32-bit floats."""
    dimensions = b"".join(content(2, integer(1, size)) for size in shape)
    tensor = integer(1, FLOAT) + content(2, dimensions) + content(4, raw)
    return content(1, tag) + content(8, tensor) + metadata(plugin, settings)
