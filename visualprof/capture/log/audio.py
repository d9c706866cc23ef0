"""Sound as WAV with 16 bits."""

from __future__ import annotations

import io
import wave
from typing import Any

from visualprof.capture.log.arrays import as_array, numpy

_MAX_CHANNELS = 8
_FULL_SCALE = 32767


def to_frames(sound: Any) -> Any:
    """Return sound as int16, (frames, channels).

    Args:
        sound: Floats from -1 to 1, 16-bit integers, or 8-bit integers around 128; (frames,), (frames, channels) or
            (channels, frames).

    Raises:
        ValueError: The array is not sound.
    """
    np = numpy()
    array = as_array(sound)
    array = array.squeeze() if array.ndim > 2 or 1 in array.shape else array
    array = array.reshape(-1, 1) if array.ndim < 2 else array
    if array.ndim > 2 or min(array.shape) > _MAX_CHANNELS or not array.size:
        raise ValueError(f"sound has a dimension of frames and at most {_MAX_CHANNELS} channels, not {array.shape}")
    if array.shape[0] < array.shape[1]:
        array = array.T
    if array.dtype == np.int16:
        return array.copy()
    if array.dtype == np.uint8:
        return (array.astype(np.int16) - 128) * 256
    return (np.nan_to_num(array.astype(np.float64)).clip(-1, 1) * _FULL_SCALE).astype(np.int16)


def wav(frames: Any, rate: int) -> bytes:
    """Return int16 frames, (frames, channels), as WAV."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(frames.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(frames.astype("<i2").tobytes())
    return out.getvalue()
