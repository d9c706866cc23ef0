"""Graphs of torch.nn.Module: calls of modules, and functions of torch between them through a TorchFunctionMode."""

from __future__ import annotations

import importlib
from typing import Any

from visualprof.capture.framework import Framework
from visualprof.capture.record import Recorder

DOCUMENTATION = "https://docs.pytorch.org/docs/stable/generated/"
# Properties that compute a tensor; the others only tell about one.
COMPUTED = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


def record(model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], title: str) -> dict[str, Any]:
    """Runs the model once and gives its document."""
    torch: Any = importlib.import_module("torch")
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    recorder = Recorder(_framework(torch), model.named_modules(), model.named_parameters(), model.named_buffers())
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() and torch.cuda.is_initialized() else ()
    with (
        torch.random.fork_rng(devices=list(devices)),
        torch.no_grad(),
        recorder.calls_of(torch.nn.Module),
        _operators(torch, recorder),
    ):
        recorder.run(model, arguments, keywords)
    return recorder.document(title)


def _framework(torch: Any) -> Framework:
    return Framework(
        "torch",
        str(torch.__version__),
        is_tensor=lambda x: isinstance(x, torch.Tensor),
        describe=lambda t: (str(t.dtype).removeprefix("torch."), _shape(t)),
        writes=_writes,
        documentation=lambda kind: _layer_page(torch, kind),
        builtin=lambda kind: kind.__module__.startswith("torch.nn."),
        profile_prefix="nn.Module: ",  # as torch.profiler writes it with with_stack=True
    )


def _operators(torch: Any, recorder: Recorder) -> Any:
    """A mode that reports every function of torch that Python calls, the outermost only."""
    resolve = torch.overrides.resolve_name

    class Operators(torch.overrides.TorchFunctionMode):
        """Reports to the recorder."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            """Runs and reports one function."""
            del types
            keywords: dict[str, Any] = kwargs or {}
            label = _label(func)
            if label.startswith("__") or label in SILENT:
                return func(*args, **keywords)
            return recorder.operator(
                lambda: func(*args, **keywords), label, args, keywords, _function_page(resolve(func), label)
            )

    return Operators()


SILENT = frozenset({"requires_grad_", "retain_grad", "as_subclass", "is_contiguous"})
# Methods of Python's that say nothing about the model: they keep their name, which is passed over.
KEPT = frozenset(
    {f"__{n}__" for n in ["set", "delete", "len", "bool", "float", "int", "index", "repr", "format", "iter"]}
)
ARITHMETIC = frozenset({"add", "sub", "mul", "truediv", "div", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"})


def _label(func: Any) -> str:
    """`__radd__` -> add, getter of `T` -> T, getters that compute nothing -> `__get__`."""
    name = getattr(func, "__name__", "function")
    if name == "__get__":
        of = getattr(getattr(func, "__self__", None), "__name__", "")
        return of if of in COMPUTED else name
    inner = name[2:-2]
    if name in KEPT or name != f"__{inner}__":
        return name
    return inner[1:] if inner[:1] in ("r", "i") and inner[1:] in ARITHMETIC else inner


def _function_page(path: str | None, label: str) -> str:
    """Page of `torch.nn.functional.relu`, `torch.matmul` or `torch.Tensor.view`; operators like + have none."""
    if not path or path.rsplit(".", 1)[-1] != label or label.startswith("_"):
        return ""
    public = path.startswith(("torch.nn.functional.", "torch.Tensor.")) or path.count(".") == 1
    return f"{DOCUMENTATION}{path}.html" if path.startswith("torch.") and public else ""


def _layer_page(torch: Any, kind: type) -> str:
    known = kind.__module__.startswith("torch.nn.modules.") and getattr(torch.nn, kind.__name__, None) is kind
    return f"{DOCUMENTATION}torch.nn.{kind.__name__}.html" if known else ""


def _shape(tensor: Any) -> list[int]:
    try:
        return [int(s) for s in tensor.shape]
    except RuntimeError:  # nested tensors have no single shape
        return [int(tensor.size(0))]


def _writes(tensor: Any) -> int:
    try:
        return int(tensor._version)  # noqa: SLF001
    except RuntimeError:  # inference tensors do not count
        return 0
