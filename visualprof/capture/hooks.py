"""Where frameworks tell that a step ended, for scripts that do not call `step` themselves."""

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
    """Calls `ended` after each step of an optimizer, or each run of a session, until it is undone.

    Of several optimizers the first one counts, until it is gone: two of one training would make two steps of one.

    Args:
        framework: that is imported.
        ended: takes the optimizer or the session.
        named: somebody said that this framework is what to record.
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
    """Calls `then` with the name of each of these modules once it is imported, until it is undone; at once if it is."""
    for name in names:
        if name in sys.modules:
            then(name)
    finder = _Imports({name for name in names if name not in sys.modules}, then)
    sys.meta_path.insert(0, finder)
    return functools.partial(sys.meta_path.remove, finder)


class _Imports(MetaPathFinder):
    """Finds nothing itself: it wraps the loader that the others find."""

    def __init__(self, names: set[str], then: Callable[[str], None]) -> None:
        self._names = names
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of one of the modules; it is looked for by the others, as its name is forgotten here first."""
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
    # Else its profiler wraps `step` again, in a range in which it may not end.
    importlib.import_module("paddle.profiler.utils").wrap_optimizers()
    _after(importlib.import_module("paddle.optimizer").Optimizer, "step", ended)


def _megengine(ended: Ended) -> None:
    _after(importlib.import_module("megengine.optimizer").Optimizer, "step", ended)


def _onnxruntime(ended: Ended) -> None:
    def after(session: Any) -> None:  # while one is recorded, a twin runs for it
        ended(vars(session).get("twin_of", session))

    _after(importlib.import_module("onnxruntime").InferenceSession, "run", after)


def _openvino(ended: Ended) -> None:
    openvino: Any = importlib.import_module("openvino")
    recorder = importlib.import_module("visualprof.capture.recorders.openvino")

    def wanted() -> bool:  # a script that trains, and runs a model besides, should not pay for its counters
        return "openvino" in _named or not _TRAINING & sys.modules.keys()

    openvino.Core.compile_model = recorder.with_counters(openvino.Core.compile_model, wanted)
    _after(openvino.CompiledModel, "__call__", ended)


_TRAINING = {"torch", "megengine", "paddle"}
_HOOKS: dict[str, Callable[[Ended], None]] = {
    "torch": _torch, "paddle": _paddle, "megengine": _megengine, "onnxruntime": _onnxruntime, "openvino": _openvino,
}  # fmt: skip


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
    """Calls `then` after each call of a method, wherever subclasses define it; a call of the base's within is none."""
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
    """The classes that define a method: the bases whose it is, the class, and those below it."""
    yield next(kind for kind in owner.__mro__ if method in vars(kind))
    below = list(owner.__subclasses__())
    while below:
        kind = below.pop()
        below += kind.__subclasses__()
        if method in vars(kind):
            yield kind
