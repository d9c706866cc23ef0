"""Record graphs of MegEngine modules: calls of modules, and operators through the hook that TracedModule uses."""

from __future__ import annotations

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from visualprof.capture.framework import Framework, Value
from visualprof.capture.record import Recorder

DOCUMENTATION = "https://www.megengine.org.cn/doc/stable/zh/reference/api/megengine.module."
NOTE = "_NodeMixin__node"  # C++ attribute in which TracedModule stores its nodes
UNTOLD = (
    "scope",
    "workspace_limit",
    "compute_mode",
    "strategy",
)  # parameters of the implementation, not of the operation


def record(model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], title: str) -> dict[str, Any]:
    """Run the model once and return its graph document."""
    megengine: Any = importlib.import_module("megengine")
    modules: Any = importlib.import_module("megengine.module")
    core: Any = importlib.import_module("megengine.core._imperative_rt.core2")
    notes = _Notes()
    framework = Framework(
        "megengine",
        str(megengine.__version__),
        is_tensor=lambda x: isinstance(x, core.Tensor),
        describe=lambda t: (_dtype(t), [int(s) for s in t.shape]),
        writes=lambda _: 0,
        documentation=lambda kind: (
            f"{DOCUMENTATION}{kind.__name__}.html" if getattr(modules, kind.__name__, None) is kind else ""
        ),
        builtin=lambda kind: kind.__module__.startswith("megengine.module."),
        memory=notes,
    )
    recorder = Recorder(framework, model.named_modules(), model.named_parameters(), model.named_buffers())
    try:
        with recorder.calls_of(modules.Module), _operators(core, recorder):
            recorder.run(model, arguments, keywords)
    finally:
        notes.clear()
    return recorder.document(title)


class _Notes:
    """Recorded values by tensor, in a C++ attribute that all Python objects of one tensor share."""

    def __init__(self) -> None:
        self._outside: list[Any] = []

    def get(self, tensor: Any) -> Value | None:
        """Return the recorded value."""
        value = getattr(tensor, NOTE, None)
        return value if isinstance(value, Value) else None

    def set(self, tensor: Any, value: Value, outside: bool) -> None:
        """Record the value."""
        if outside:
            self._outside.append(tensor)
        setattr(tensor, NOTE, value)

    def clear(self) -> None:
        """Remove the attributes. On MegEngine's own constants they would outlive Python and crash its exit."""
        for tensor in self._outside:
            if self.get(tensor):
                delattr(tensor, NOTE)


@contextmanager
def _operators(core: Any, recorder: Recorder) -> Generator[None]:
    """Report every operator of MegEngine while the context is open."""

    def run(operator: Any, tensors: tuple[Any, ...]) -> Any:
        core.unset_module_tracing()
        try:
            return core.apply(operator, *tensors)
        finally:
            core.set_module_tracing()

    def apply(operator: Any, *tensors: Any) -> Any:
        return recorder.operator(lambda: run(operator, tensors), str(operator), tensors, _parameters(operator))

    # MegEngine keeps the hook of its first trace, possibly an earlier one. So only the code of the hook is replaced.
    tracer: Any = importlib.import_module("megengine.traced_module.expr")
    hook = tracer.Apply.apply_module_trace_hook.__func__
    code, tracing = hook.__code__, tracer.is_tracing_module
    hook.__globals__["reported_operator"] = apply
    hook.__code__ = _hook.__code__
    tracer.is_tracing_module = lambda: False  # a TracedModule checks this before it calls a function
    core.set_module_tracing()
    try:
        yield
    finally:
        core.unset_module_tracing()
        tracer.is_tracing_module = tracing
        hook.__code__ = code
        del hook.__globals__["reported_operator"]


reported_operator: Any = None  # `_hook` runs with the globals of another module, which `_operators` sets


def _hook(cls: Any, opdef: Any, *inputs: Any) -> Any:
    del cls
    return reported_operator(opdef, *inputs)


def _dtype(tensor: Any) -> str:
    try:
        return getattr(tensor.dtype, "__name__", "") or str(tensor.dtype)
    except RuntimeError:  # raw bytes, such as BatchNorm's reserved space, have no numpy type
        return "byte"


def _parameters(operator: Any) -> dict[str, Any]:
    """Return the parameters of an operator by name."""
    parameters = {n: getattr(operator, n, None) for n in dir(operator) if not n.startswith("_") and n not in UNTOLD}
    return {
        n: v if isinstance(v, (int, float, str, tuple, list)) else str(v)
        for n, v in parameters.items()
        if not callable(v) and v is not None
    }
