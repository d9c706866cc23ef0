"""Hooks into frameworks that report the end of a step, for scripts that do not call `step`."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Ended = Callable[[Any], object]


Undo = Callable[[], None]
_watchers: dict[str, list[Ended]] = {}
_named: set[str] = set()


def watch(framework: str, ended: Ended, named: bool = False) -> Undo:
    """Call `ended` after each step of an optimizer, or each run of a session, until it is undone.

    Only the first of several optimizers counts, until it is deleted: two optimizers of one training would double the
    steps.

    Args:
        framework: An imported framework.
        ended: Called with the optimizer or the session.
        named: The user named this framework as the one to record.
    """
    if named:
        _named.add(framework)
    if framework not in _watchers:
        _watchers[framework] = []
        _HOOKS[framework](functools.partial(_tell, framework))
    watcher = _first(ended)
    _watchers[framework].append(watcher)
    return functools.partial(_watchers[framework].remove, watcher)


def _tell(framework: str, subject: Any) -> None:
    for watcher in tuple(_watchers[framework]):
        watcher(subject)


def when_imported(names: Sequence[str], then: Callable[[str], None]) -> Undo:
    """Call `then` with the name of each module once it is imported, at once if it is already; until it is undone."""
    for name in names:
        if name in sys.modules:
            then(name)
    finder = _Imports({name for name in names if name not in sys.modules}, then)
    sys.meta_path.insert(0, finder)
    return functools.partial(sys.meta_path.remove, finder)


class _Imports(MetaPathFinder):
    """Import finder that finds nothing itself but wraps the loader that other finders return."""

    def __init__(self, names: set[str], then: Callable[[str], None]) -> None:
        self._names = names
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a watched module from the other finders."""
        if fullname not in self._names:
            return None
        self._names.discard(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._then(fullname)

            spec.loader.exec_module = exec_module
        return spec


def _torch(ended: Ended) -> None:
    optimizer: Any = importlib.import_module("torch.optim.optimizer")

    def after(subject: Any, *_: Any) -> None:
        ended(subject)

    optimizer.register_optimizer_step_post_hook(after)


def _paddle(ended: Ended) -> None:
    # Otherwise torch's profiler wraps `step` again, in a range in which a recording must not end.
    importlib.import_module("paddle.profiler.utils").wrap_optimizers()
    _after(importlib.import_module("paddle.optimizer").Optimizer, "step", ended)


def _megengine(ended: Ended) -> None:
    _after(importlib.import_module("megengine.optimizer").Optimizer, "step", ended)


def _onnxruntime(ended: Ended) -> None:
    def after(session: Any) -> None:  # during a recording, a profiled copy runs instead
        ended(vars(session).get("twin_of", session))

    _after(importlib.import_module("onnxruntime").InferenceSession, "run", after)


def _openvino(ended: Ended) -> None:
    openvino: Any = importlib.import_module("openvino")
    recorder = importlib.import_module("visualprof.capture.recorders.openvino")

    def wanted() -> bool:  # a training script that also runs a model should not pay for its counters
        return "openvino" in _named or not _TRAINING & sys.modules.keys()

    openvino.Core.compile_model = recorder.with_counters(openvino.Core.compile_model, wanted)
    _after(openvino.CompiledModel, "__call__", ended)


_TRAINING = {"torch", "megengine", "paddle"}
_HOOKS: dict[str, Callable[[Ended], None]] = {
    "torch": _torch,
    "paddle": _paddle,
    "megengine": _megengine,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}


def _first(ended: Ended) -> Ended:
    counted: Callable[[], Any] = lambda: None  # noqa: E731

    def then(subject: Any) -> None:
        nonlocal counted
        if counted() is None:
            counted = weakref.ref(subject)
        if counted() is subject:
            ended(subject)

    return then


def _after(owner: type, method: str, then: Ended) -> None:
    """Call `then` after each call of a method in all subclasses. A nested call of the base method does not count."""
    depth = 0

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: Any, *args: Any, **keywords: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                result = original(self, *args, **keywords)
            finally:
                depth -= 1
            if not depth:
                then(self)
            return result

        return call

    for kind in _defining(owner, method):
        setattr(kind, method, wrapped(vars(kind)[method]))


def _defining(owner: type, method: str) -> Iterator[type]:
    """Yield the classes that define a method: base classes, the class itself, and subclasses."""
    yield next(kind for kind in owner.__mro__ if method in vars(kind))
    below = list(owner.__subclasses__())
    while below:
        kind = below.pop()
        below += kind.__subclasses__()
        if method in vars(kind):
            yield kind
