"""`ScalarLogger` of each framework, driven by its hooks; real base classes where they are installed."""

from __future__ import annotations

import importlib
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from visualprof.cli._subjects import run_data_below

# The modules that are imported, and what stands for them where they are not installed.
PACKAGES: dict[str, dict[str, Any]] = {
    "lightning": {
        "lightning.pytorch": SimpleNamespace(Callback=object),
        "lightning.pytorch.loggers": SimpleNamespace(Logger=object),
        "lightning.pytorch.utilities": SimpleNamespace(rank_zero_only=lambda function: function),  # pyright: ignore[reportUnknownLambdaType]
    },
    "transformers": {"transformers": SimpleNamespace(TrainerCallback=object)},
    "keras": {"keras": SimpleNamespace(callbacks=SimpleNamespace(Callback=object))},
    "paddle": {"paddle": SimpleNamespace(callbacks=SimpleNamespace(Callback=object))},
}


def is_installed(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def logger_of(framework: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the logger of a framework."""
    for name, stand_in in PACKAGES[framework].items():
        if not is_installed(name):
            monkeypatch.setitem(sys.modules, name, stand_in)
    module = f"visualprof.capture.callbacks.{framework}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    return importlib.import_module(module).ScalarLogger(folder)


def logged(folder: Path) -> dict[str, list[tuple[int, float]]]:
    data = run_data_below(str(folder))
    return {
        row.tag: list(zip(part.points.step.tolist(), part.points.value.tolist(), strict=True))
        for row in data.scalar_tags()
        for part in data.points(row.line, row.tag)
    }


def test_keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logger_of("keras", tmp_path, monkeypatch)
    for epoch in range(2):
        for batch in range(2):
            logger.on_train_batch_end(batch, {"loss": 1.0 + batch})
        logger.on_epoch_end(epoch, logs={"loss": 0.5, "val_loss": 0.25})
    logger.on_train_end()
    assert logged(tmp_path) == {
        "batch/loss": [(0, 1.0), (1, 2.0), (2, 1.0), (3, 2.0)],
        "epoch/loss": [(0, 0.5), (1, 0.5)],
        "epoch/val_loss": [(0, 0.25), (1, 0.25)],
    }


def test_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logger_of("transformers", tmp_path, monkeypatch)
    for step, is_first in ((10, True), (20, False)):
        state = SimpleNamespace(global_step=step, is_world_process_zero=is_first)
        logger.on_log("args", state, "control", logs={"loss": 0.5, "eval_loss": 0.25, "note": "text"}, model=None)
    logger.on_train_end("args", "state", "control")
    assert logged(tmp_path) == {"train/loss": [(10, 0.5)], "eval/loss": [(10, 0.25)]}


def test_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logger_of("lightning", tmp_path, monkeypatch)
    logger.log_hyperparams(Namespace(lr=0.5))
    logger.log_metrics({"loss": 0.5, "epoch": 0}, step=3)
    logger.finalize("success")
    assert logged(tmp_path) == {"loss": [(3, 0.5)], "epoch": [(3, 0.0)]}
    assert (logger.name, logger.version) == ("visualprof", "")


def test_paddle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logger_of("paddle", tmp_path, monkeypatch)
    for step in range(2):
        logger.on_train_batch_end(step, {"loss": [0.5], "acc": 0.25, "step": step, "batch_size": 4})
    logger.on_eval_end({"loss": [0.125]})
    logger.on_train_end()
    assert logged(tmp_path) == {
        "train/loss": [(0, 0.5), (1, 0.5)],
        "train/acc": [(0, 0.25), (1, 0.25)],
        "eval/loss": [(0, 0.125)],
    }


def test_nothing_is_written_before_the_first_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logger_of("keras", tmp_path / "run", monkeypatch)
    logger.on_train_end()
    assert not (tmp_path / "run").exists()
