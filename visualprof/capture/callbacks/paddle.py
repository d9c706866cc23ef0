"""Callback for `paddle.Model` (hapi): each training batch is a step."""

from __future__ import annotations

from typing import Any

import paddle  # pyright: ignore[reportMissingImports]

from visualprof.capture.callbacks import Driven

_PADDLE: Any = paddle


class StepProfiler(Driven, _PADDLE.callbacks.Callback):
    """Callback: `model.fit(..., callbacks=[StepProfiler("runs", steps=5)])`."""

    framework = "paddle"
    on_train_begin, on_train_batch_end, on_train_end = Driven.begin, Driven.step, Driven.end
