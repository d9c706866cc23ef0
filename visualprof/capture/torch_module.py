"""Graphs of torch.nn.Module: calls of modules, and functions of torch between them through a TorchFunctionMode."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from visualprof.capture.framework import Framework
from visualprof.capture.record import Recorder

DOCUMENTATION = "https://docs.pytorch.org/docs/stable/generated/"
# Properties that compute a tensor; the others only tell about one.
COMPUTED = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


def record(model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], title: str) -> dict[str, Any]:
    """Run the model once and gives its document."""
    torch: Any = importlib.import_module("torch")
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() and torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=list(devices)), torch.no_grad():
        if any(torch.nn.parameter.is_lazy(t) for t in (*model.parameters(), *model.buffers())):
            _recorder(torch, model).run(model, arguments, keywords)  # makes the parameters of its lazy layers
        recorder = _recorder(torch, model)
        with recorder.calls_of(torch.nn.Module), _operators(torch, recorder), _wrapped(torch, recorder):
            recorder.run(model, arguments, keywords)
    return recorder.document(title)


def _recorder(torch: Any, model: Any) -> Recorder:
    recorder = Recorder(
        _framework(torch, lambda module: _interpreted(torch, recorder, module)),
        model.named_modules(),
        model.named_parameters(),
        model.named_buffers(),
    )
    return recorder


def _framework(torch: Any, inside: Callable[[Any], AbstractContextManager[Any]]) -> Framework:
    return Framework(
        "torch",
        str(torch.__version__),
        is_tensor=lambda x: isinstance(x, torch.Tensor),
        describe=lambda t: (str(t.dtype).removeprefix("torch."), _shape(t)),
        writes=_writes,
        documentation=lambda kind: _layer_page(torch, kind),
        builtin=lambda kind: kind.__module__.startswith(("torch.nn.", "torch.ao.nn.")),
        profile_prefix="nn.Module: ",  # as torch.profiler writes it with with_stack=True
        kind=lambda module: getattr(module, "original_name", "") or type(module).__name__,  # of a scripted module
        packed=_packed,
        inside=inside,
    )


def _packed(module: Any) -> dict[str, Any]:
    """Weights of a quantized layer, which it gives out by methods: one tensor, or several of a recurrent layer."""
    if not type(module).__module__.startswith("torch.ao.nn."):
        return {}
    several = {"get_weight", "get_bias"} & set(dir(module))
    parameters: dict[str, Any] = {}
    for name in sorted(several, reverse=True):
        parameters |= getattr(module, name)()
    for name in () if several else ("weight", "bias"):
        method = getattr(module, name, None)
        parameters[name] = method() if callable(method) else None
    return {name: tensor for name, tensor in parameters.items() if tensor is not None}


def _operators(torch: Any, recorder: Recorder) -> Any:
    """Return a mode that reports every outermost torch function that Python calls."""
    resolve = torch.overrides.resolve_name

    class Operators(torch.overrides.TorchFunctionMode):
        """A mode that reports functions to the recorder."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            """Run and report one function."""
            del types
            keywords: dict[str, Any] = kwargs or {}
            label = _label(func)
            if label.startswith("__") or label in SILENT:
                return func(*args, **keywords)
            return recorder.operator(
                lambda: func(*args, **keywords), label, args, keywords, _function_page(resolve(func), label)
            )

    return Operators()


@contextmanager
def _interpreted(torch: Any, recorder: Recorder, module: Any) -> Generator[None]:
    """While a scripted module runs, which calls no functions of Python, what its interpreter runs is reported."""
    dispatch: Any = importlib.import_module("torch.utils._python_dispatch")

    class Operators(dispatch.TorchDispatchMode):
        """A mode that reports functions to the recorder."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            """Run and reports one operator."""
            del types
            keywords: dict[str, Any] = kwargs or {}
            declared: Any = func._schema.arguments  # noqa: SLF001
            written = [a for a, of in zip(args, declared, strict=False) if of.alias_info and of.alias_info.is_write]
            label = func.overloadpacket.__name__
            return recorder.operator(
                lambda: func(*args, **keywords), label, args, keywords, hidden=True, written=written
            )

    if isinstance(module, torch.jit.ScriptModule):
        with torch.jit.optimized_execution(False), Operators():  # optimized, it gives modes wrong arguments
            yield
    else:
        yield


@contextmanager
def _wrapped(torch: Any, recorder: Recorder) -> Generator[None]:
    """Make `torch.vmap` and `torch.func.grad` report the tensors that they wrap and unwrap, inside the context."""
    vmap: Any = importlib.import_module("torch._functorch.vmap")
    grad: Any = importlib.import_module("torch._functorch.eager_transforms")

    def reporting(function: Any, label: str) -> Any:
        def call(tensor: Any, *arguments: Any) -> Any:
            if label:
                return recorder.operator(lambda: function(tensor, *arguments), label, (tensor,), {})
            out = function(tensor, *arguments)
            recorder.same(tensor, out)
            return out

        return call

    ends = (
        (vmap, "_add_batch_dim", "vmap_in"),
        (vmap, "_remove_batch_dim", "vmap_out"),
        (grad, "_wrap_for_grad", ""),
        (grad, "_unwrap_for_grad", ""),
    )
    with ExitStack() as restore:
        for place, name, label in ends:
            if function := getattr(place, name, None):
                setattr(place, name, reporting(function, label))
                restore.callback(setattr, place, name, function)
        yield


SILENT = frozenset({"requires_grad_", "retain_grad", "as_subclass", "is_contiguous"})
# Methods of Python's that say nothing about the model: they keep their name, which is passed over.
UNREPORTED_METHODS = frozenset(
    {f"__{n}__" for n in ["set", "delete", "len", "bool", "float", "int", "index", "repr", "format", "iter"]}
)
ARITHMETIC = frozenset({"add", "sub", "mul", "truediv", "div", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"})


def _label(func: Any) -> str:
    """`__radd__` -> add, getter of `T` -> T, getters that compute nothing -> `__get__`."""
    name = getattr(func, "__name__", "function")
    if name == "__get__":
        owner_name = getattr(getattr(func, "__self__", None), "__name__", "")
        return owner_name if owner_name in COMPUTED else name
    inner = name[2:-2]
    if name in UNREPORTED_METHODS or name != f"__{inner}__":
        return name
    return inner[1:] if inner[:1] in ("r", "i") and inner[1:] in ARITHMETIC else inner


def _function_page(path: str | None, label: str) -> str:
    """Page of `torch.nn.functional.relu`, `torch.matmul` or `torch.Tensor.view`; operators like + have none."""
    if not path or path.rsplit(".", 1)[-1] != label or label.startswith("_"):
        return ""
    public = path.startswith(("torch.nn.functional.", "torch.Tensor.")) or path.count(".") == 1
    return f"{DOCUMENTATION}{path}.html" if path.startswith("torch.") and public else ""


def _layer_page(torch: Any, kind: type) -> str:
    from_torch = kind.__module__.startswith("torch.nn.modules.") and getattr(torch.nn, kind.__name__, None) is kind
    return f"{DOCUMENTATION}torch.nn.{kind.__name__}.html" if from_torch else ""


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
