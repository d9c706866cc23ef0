"""Callback for PyTorch Lightning: each training batch is a step. Validation belongs to the batch after it."""

from __future__ import annotations

import importlib
from typing import Any

from visualprof.capture.callbacks import Driven


def _lightning() -> Any:
    try:
        return importlib.import_module("lightning.pytorch")
    except ImportError:  # older name of the package
        return importlib.import_module("pytorch_lightning")


class StepProfiler(Driven, _lightning().Callback):
    """Callback: `Trainer(callbacks=[StepProfiler("runs", steps=5)])`."""

    on_train_start, on_train_batch_end, on_train_end = Driven.begin, Driven.step, Driven.end

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """Write the steps that were recorded until the exception."""
        del trainer, module
        self._profile.__exit__(type(exception), exception, exception.__traceback__)
