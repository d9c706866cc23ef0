"""Callbacks for Keras 3: each training batch is a step. Profiles need torch as its backend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import keras  # pyright: ignore[reportMissingImports]

from visualprof.capture.callbacks import Driven, Logged
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


class ScalarLogger(Logged, _KERAS.callbacks.Callback):
    """Callback: `model.fit(..., callbacks=[ScalarLogger("runs/today")])`.

    Logs metrics as `batch/NAME` after each batch, and as `epoch/NAME` after each epoch.
    """

    on_train_end = Logged.close

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Log the metrics of a batch, counted over all epochs."""
        del batch
        self.write(logs, None, "batch/")

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Log the metrics of an epoch."""
        self.write(logs, epoch, "epoch/")
