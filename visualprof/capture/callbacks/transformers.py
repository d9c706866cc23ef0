"""Callbacks for the Trainer of Hugging Face: each optimizer step is a step, however many batches it accumulates."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from visualprof.capture.callbacks import Driven, Logged

_BASE: Any = importlib.import_module("transformers").TrainerCallback
_EVALUATION = "eval_"


class StepProfiler(Driven, _BASE):
    """Callback: `Trainer(..., callbacks=[StepProfiler("runs", steps=5)])`."""

    on_train_begin, on_step_end, on_train_end = Driven.begin, Driven.step, Driven.end


class ScalarLogger(Logged, _BASE):
    """Callback: `Trainer(..., callbacks=[ScalarLogger("runs/today")])`.

    Logs the metrics of the Trainer as `train/NAME` or `eval/NAME`. Only the first process logs.
    """

    on_train_end = Logged.close

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **others: Any) -> None:
        """Log metrics."""
        del args, control, others
        if not state.is_world_process_zero:
            return
        for name, value in (logs or {}).items():
            is_evaluation = name.startswith(_EVALUATION)
            prefix = "eval/" if is_evaluation else "train/"
            self.write({name.removeprefix(_EVALUATION): value}, state.global_step, prefix)
