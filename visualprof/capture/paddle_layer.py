"""Record graphs of Paddle layers: calls of layers, and operators through the functions that Paddle generates."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from types import BuiltinFunctionType
from typing import Any

from visualprof.capture.framework import Framework
from visualprof.capture.record import Recorder

DOCUMENTATION = "https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/nn/"
# Python operators that Paddle implements in C++ without `_C_ops`.
METHODS = {
    f"__{prefix}{name}__": name
    for prefix in ("", "r")
    for name in ("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
} | {f"__{name}__": name for name in ("neg", "abs", "invert", "getitem", "setitem", "eq", "ne", "lt", "le", "gt", "ge")}


def record(model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], title: str) -> dict[str, Any]:
    """Run the model once and return its graph document."""
    paddle: Any = importlib.import_module("paddle")
    framework = Framework(
        "paddle",
        str(paddle.__version__),
        is_tensor=lambda x: isinstance(x, paddle.Tensor),
        describe=lambda t: (str(t.dtype).rsplit(".", 1)[-1].lower(), [int(s) for s in t.shape]),
        writes=lambda t: int(getattr(t, "inplace_version", 0)),
        documentation=lambda kind: (
            f"{DOCUMENTATION}{kind.__name__}_en.html" if getattr(paddle.nn, kind.__name__, None) is kind else ""
        ),
        builtin=lambda kind: kind.__module__.startswith("paddle.nn."),
        forward=lambda model: getattr(
            model.forward, "dygraph_function", model.forward
        ),  # the function that `to_static` wraps
    )
    layers = model.named_sublayers(include_self=True)
    recorder = Recorder(framework, layers, model.named_parameters(), model.named_buffers())
    state = paddle.get_rng_state()
    program: Any = importlib.import_module("paddle.jit.dy2static.program_translator").ProgramTranslator()
    static = program.enable_to_static
    try:
        program.enable(False)  # layers of `to_static` run eagerly
        with paddle.no_grad(), recorder.calls_of(paddle.nn.Layer), _operators(paddle, recorder):
            recorder.run(model, arguments, keywords)
    finally:
        program.enable(static)
        paddle.set_rng_state(state)
    return recorder.document(title)


@contextmanager
def _operators(paddle: Any, recorder: Recorder) -> Generator[None]:
    """Report functions of `_C_ops`, functions bound from there, and Python's operators on tensors."""

    def reporting(function: Any, label: str) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            return recorder.operator(lambda: function(*arguments, **keywords), label, arguments, keywords)

        return call

    placed: Any = dict(_members(paddle.Tensor)).get("_use_gpudnn")

    def renamed(tensor: Any, *arguments: Any) -> Any:
        out = placed(tensor, *arguments)
        recorder.same(tensor, out)
        return out

    generated = paddle._C_ops  # noqa: SLF001
    with ExitStack() as restore:
        if placed is not None:  # returns another object for the same tensor
            paddle.Tensor._use_gpudnn = renamed  # noqa: SLF001
            restore.callback(setattr, paddle.Tensor, "_use_gpudnn", placed)
        for place in _modules(paddle):
            for name, function in _members(place):
                public = not name.startswith("_") and hasattr(generated, name)
                if public and isinstance(function, BuiltinFunctionType):
                    setattr(place, name, reporting(function, name))
                    restore.callback(setattr, place, name, function)
        for name, method in _members(paddle.Tensor):
            native = type(method).__name__ == "method_descriptor" and hasattr(generated, name)
            if name in METHODS or native:
                setattr(paddle.Tensor, name, reporting(method, METHODS.get(name, name)))
                restore.callback(setattr, paddle.Tensor, name, method)
        yield


def _modules(paddle: Any) -> list[Any]:
    """Return the Python modules of Paddle: `from paddle import tensor` gives another module than `paddle.tensor`."""
    loaded = [m for name, m in list(sys.modules.items()) if name.startswith("paddle.") and hasattr(m, "__file__")]
    return list({id(m): m for m in (paddle, paddle.tensor, *loaded)}.values())


def _members(place: Any) -> list[tuple[str, Any]]:
    held: dict[str, Any] = dict(place.__dict__)
    return list(held.items())
