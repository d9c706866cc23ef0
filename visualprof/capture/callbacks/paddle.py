"""Callbacks for `paddle.Model` (hapi): each training batch is a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import paddle  # pyright: ignore[reportMissingImports]

from visualprof.capture.callbacks import Driven, Logged

_PADDLE: Any = paddle
_PROGRESS = ("step", "batch_size")


class StepProfiler(Driven, _PADDLE.callbacks.Callback):
    """Callback: `model.fit(..., callbacks=[StepProfiler("runs", steps=5)])`."""

    framework = "paddle"
    on_train_begin, on_train_batch_end, on_train_end = Driven.begin, Driven.step, Driven.end


class ScalarLogger(Logged, _PADDLE.callbacks.Callback):
    """Callback: `model.fit(..., callbacks=[ScalarLogger("runs/today")])`.

    Logs metrics as `train/NAME` after each training batch, and as `eval/NAME` after each evaluation.
    """

    on_train_end = Logged.close

    def on_train_batch_end(self, step: int, logs: Mapping[str, Any] | None = None) -> None:
        """Log the metrics of a batch, counted over all epochs."""
        del step
        self.write(_numbers(logs), None, "train/")

    def on_eval_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Log the metrics of an evaluation."""
        self.write(_numbers(logs), None, "eval/")


def _numbers(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metrics; Paddle reports a loss as a list, and the progress as metrics."""
    lists = {name: value for name, value in (logs or {}).items() if name not in _PROGRESS}
    return {name: value[0] if isinstance(value, list) and value else value for name, value in lists.items()}  # pyright: ignore[reportUnknownVariableType]
