"""Callbacks, driven by the hooks that each framework documents; real ones where they are installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from visualprof.capture.options import CaptureError  # noqa: E402
from visualprof.reader import read_trace  # noqa: E402

model = torch.nn.Linear(8, 8)
KERAS = SimpleNamespace(callbacks=SimpleNamespace(Callback=object), backend=SimpleNamespace(backend=lambda: "torch"))
# The module that is imported, stand-ins where it is not installed, and its hooks with what they are given.
LOOPS: dict[str, tuple[str, dict[str, Any], tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...]]] = {
    "lightning": (
        "lightning.pytorch",
        {
            "lightning.pytorch": SimpleNamespace(Callback=object),
            "lightning.pytorch.loggers": SimpleNamespace(Logger=object),
            "lightning.pytorch.utilities": SimpleNamespace(rank_zero_only=staticmethod),
        },
        (
            ("on_train_start", ("trainer", "module"), {}),
            ("on_train_batch_end", ("trainer", "module", None, None, 0), {}),
            ("on_train_end", ("trainer", "module"), {}),
        ),
    ),
    "transformers": (
        "transformers",
        {"transformers": SimpleNamespace(TrainerCallback=object)},
        (
            ("on_train_begin", ("args", "state", "control"), {"model": None}),
            ("on_step_end", ("args", "state", "control"), {"model": None}),
            ("on_train_end", ("args", "state", "control"), {"model": None}),
        ),
    ),
    "keras": (
        "keras",
        {"keras": KERAS},
        (("on_train_begin", (), {"logs": None}), ("on_train_batch_end", (0,), {"logs": {}}), ("on_train_end", (), {})),
    ),
}


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Callable[[Any], Any]]]:
    """The module of a callback, and its hooks: before, after each step, at the end."""
    package, stand_ins, hooks = LOOPS[request.param]
    try:
        importlib.import_module(package)
    except ImportError:
        for module, stand_in in stand_ins.items():
            monkeypatch.setitem(sys.modules, module, stand_in)
    name = f"visualprof.capture.callbacks.{request.param}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    calls = [lambda c, h=h: getattr(c, h[0])(*h[1], **h[2]) for h in hooks]
    return importlib.import_module(name), calls


def work() -> None:
    model(torch.ones(4, 8)).sum().backward()


def steps(folder: Path) -> list[str]:
    (path,) = folder.rglob("*.trace.json.gz")
    trace = read_trace(path)
    return [trace.strings[n] for n in trace.steps.name]


def recorded(loop: Any, folder: Path, wanted: int, done: int) -> list[str]:
    """The steps that a recording of so many has of a loop of so many; then the loop works on until it ends."""
    module, (begin, step, end) = loop
    callback = module.StepProfiler(folder, steps=wanted, monitor=False)
    begin(callback)
    for _ in range(done):
        work()
        step(callback)
    work()
    end(callback)
    callback._profile.files()
    return steps(folder)


@pytest.mark.slow
def test_the_steps_of_a_loop(loop: Any, tmp_path: Path) -> None:
    assert recorded(loop, tmp_path, wanted=3, done=8) == ["2", "3", "4"]


def test_a_loop_that_ends_early_leaves_its_whole_steps(loop: Any, tmp_path: Path) -> None:
    assert recorded(loop, tmp_path, wanted=30, done=5) == ["2", "3", "4"]


def test_keras_on_another_backend_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(
        sys.modules, "keras", SimpleNamespace(callbacks=KERAS.callbacks, backend=SimpleNamespace(backend=lambda: "jax"))
    )
    monkeypatch.delitem(sys.modules, "visualprof.capture.callbacks.keras", raising=False)
    module = importlib.import_module("visualprof.capture.callbacks.keras")
    with pytest.raises(CaptureError, match="cannot record Keras on jax"):
        module.StepProfiler(tmp_path)
