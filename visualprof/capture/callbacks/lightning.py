"""Callback and logger for PyTorch Lightning.

Each training batch is a step of a profile. Validation belongs to the batch after it.
"""

from __future__ import annotations

import importlib
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from visualprof.capture.callbacks import Driven, Logged


def _import(part: str) -> Any:
    try:
        return importlib.import_module(f"lightning.pytorch{part}")
    except ImportError:  # older name of the package
        return importlib.import_module(f"pytorch_lightning{part}")


_on_first_rank: Any = _import(".utilities").rank_zero_only


class StepProfiler(Driven, _import("").Callback):
    """Callback: `Trainer(callbacks=[StepProfiler("runs", steps=5)])`."""

    on_train_start, on_train_batch_end, on_train_end = Driven.begin, Driven.step, Driven.end

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """Write the steps that were recorded until the exception."""
        del trainer, module
        self._profile.__exit__(type(exception), exception, exception.__traceback__)


class ScalarLogger(Logged, _import(".loggers").Logger):
    """Logger: `Trainer(logger=ScalarLogger("runs/today"))`. Only the first rank logs."""

    name, version = "visualprof", ""

    @_on_first_rank
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log metrics."""
        self.write(metrics, step)

    @_on_first_rank
    def log_hyperparams(self, params: Any, metrics: Mapping[str, Any] | None = None) -> None:
        """Log hyper-parameters."""
        self.writer.add_hparams(vars(params) if isinstance(params, Namespace) else params, metrics)

    def finalize(self, status: str) -> None:
        """Write all values."""
        del status
        self.close()
