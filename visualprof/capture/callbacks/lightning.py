"""PyTorch Lightning: each training batch is a step; validation between two batches belongs to the second."""

from __future__ import annotations

import importlib
from typing import Any

from visualprof.capture.callbacks import Driven


def _lightning() -> Any:
    try:
        return importlib.import_module("lightning.pytorch")
    except ImportError:  # under its older name
        return importlib.import_module("pytorch_lightning")


class StepProfiler(Driven, _lightning().Callback):
    """`Trainer(callbacks=[StepProfiler("runs", steps=5)])`."""

    on_train_start, on_train_batch_end, on_train_end = Driven.begin, Driven.step, Driven.end

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """Write what was recorded until then."""
        del trainer, module
        self._profile.__exit__(type(exception), exception, exception.__traceback__)
