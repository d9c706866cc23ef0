"""Callback for Keras 3 on torch: each training batch is a step."""

from __future__ import annotations

import os
from typing import Any

import keras  # pyright: ignore[reportMissingImports]

from visualprof.capture.callbacks import Driven
from visualprof.capture.options import CaptureError

_KERAS: Any = keras


class StepProfiler(Driven, _KERAS.callbacks.Callback):
    """Callback: `model.fit(..., callbacks=[StepProfiler("runs", steps=5)])`.

    Raises:
        CaptureError: Keras uses another backend.
    """

    on_train_begin, on_train_batch_end, on_train_end = Driven.begin, Driven.step, Driven.end

    def __init__(self, logdir: str | os.PathLike[str], **options: Any) -> None:
        if _KERAS.backend.backend() != self.framework:
            raise CaptureError(f"capture cannot record Keras on {_KERAS.backend.backend()}", "set KERAS_BACKEND=torch")
        super().__init__(logdir, **options)
