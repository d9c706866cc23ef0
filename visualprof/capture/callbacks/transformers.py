"""Callback for the Trainer of Hugging Face: each optimizer step is a step, however many batches it accumulates."""

from __future__ import annotations

import importlib
from typing import Any

from visualprof.capture.callbacks import Driven

_BASE: Any = importlib.import_module("transformers").TrainerCallback


class StepProfiler(Driven, _BASE):
    """Callback: `Trainer(..., callbacks=[StepProfiler("runs", steps=5)])`."""

    on_train_begin, on_step_end, on_train_end = Driven.begin, Driven.step, Driven.end
