"""Run one PyTorch operator alone, with inputs like in the run and the overload that PyTorch's schemas select.

Uses PyTorch and the standard library: `script.py` creates a file from this module, and agents import it.
"""

import importlib
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

from visualprof.messages import msg
from visualprof.remote.operators.clock import (
    INDEX,
    OperatorRejected,
    available_bytes,
    check_memory,
    do_nothing,
    first_sentence,
    median_or_none,
    time_on_host,
)

torch: Any = importlib.import_module("torch")

NAME = re.compile(r"[A-Za-z_]\w{0,99}::[A-Za-z_]\w{0,99}", re.ASCII)
NOT_FINITE = ("inf", "-inf", "nan")
UNSAFE = ("from_file", "save", "load")  # operators that read or write files
BETWEEN_0_AND_1 = ("bernoulli", "multinomial", "binary_cross_entropy", "log", "sqrt", "rsqrt", "pow")
POSITIVE = ("running_var", "rstd", "save_invstd", "save_var", "invstd", "variance")  # arguments
AHEAD_CYCLES = 2_000_000  # the device waits about a millisecond, so that the host can launch the timed calls
BATCH = 20  # calls that the host launches during this wait


class Operator:
    """An operator with its inputs on a device. Attributes as in `RunnableOperator`.

    Args:
        name: `namespace::name`.
        arguments: In the order of the schema; missing ones have defaults. A tensor is {"shape", "strides", "dtype"},
            several are {"tensors": [...]}; others are numbers, lists of numbers, or `None` if the profile has no value.
        device: The device.

    Raises:
        OperatorRejected: The operator cannot run here.
    """

    def __init__(self, name: str, arguments: Sequence[Any], device: str) -> None:
        self.assumed: list[str] = []
        self.device = torch.device(device)
        self._name, self._schema = name, overload_of(name, arguments)
        self.overload = f"{name}.{self._schema.overload_name or 'default'}"
        self.device_name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        self.runtime, self.threads = f"PyTorch {torch.__version__}", torch.get_num_threads()
        namespace, _, base = name.partition("::")
        packet = getattr(getattr(torch.ops, namespace), base)
        self._call = getattr(packet, self._schema.overload_name or "default")
        self.writes = any(
            argument.alias_info is not None and argument.alias_info.is_write for argument in self._schema.arguments
        )
        self._check_memory(arguments)
        torch.manual_seed(0)
        self._recorded = {
            argument.name: value for argument, value in zip(self._schema.arguments, arguments, strict=False)
        }
        self._values = {argument.name: self._value(argument) for argument in self._schema.arguments}

    def prepare_call(self) -> Callable[[], Any]:
        """Return one call. An operator that changes its inputs gets copies with the same values."""
        again: Callable[[Any], Any] = _copied if self.writes else lambda value: value
        values = {name: again(value) for name, value in self._values.items()}
        places = [values[argument.name] for argument in self._schema.arguments if not argument.kwarg_only]
        names = {argument.name: values[argument.name] for argument in self._schema.arguments if argument.kwarg_only}
        call = self._call

        def run() -> Any:
            return call(*places, **names)

        return run

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def check_run(self) -> None:
        """Run the operator once.

        Raises:
            OperatorRejected: PyTorch does not run it here.
        """
        try:
            self.prepare_call()()
            self.synchronize()
        except NotImplementedError as error:
            raise OperatorRejected(
                msg("remote.not_run", f"{self._name} does not run on {self.device.type}: {first_sentence(error)}")
            ) from error
        except (RuntimeError, ValueError, IndexError, TypeError, MemoryError) as error:
            raise OperatorRejected(
                msg("remote.refuses_inputs", f"{self.overload} refuses these inputs: {first_sentence(error)}")
            ) from error

    def time_calls(self, count: int) -> tuple[list[float], list[float]]:
        """Return times in ns of calls and of empty calls, by CUDA events or by the host's clock."""
        if self.device.type == "cuda":
            return self._device_times(self.prepare_call, count), self._device_times(lambda: do_nothing, count)
        return time_on_host(self.prepare_call, count, self.synchronize), time_on_host(
            lambda: do_nothing, count, self.synchronize
        )

    def _device_times(self, prepared: Callable[[], Callable[[], Any]], count: int) -> list[float]:
        """Return times in ns from device events. The device waits for a whole batch, so launches do not count."""
        times = list[float]()
        while len(times) < count:
            calls = [prepared() for _ in range(min(BATCH, count - len(times), self.max_prepared_calls))]
            events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in calls]
            self.synchronize()
            torch.cuda._sleep(AHEAD_CYCLES)  # noqa: SLF001 - nothing public lets a device wait
            for call, (begin, end) in zip(calls, events, strict=True):
                begin.record()
                call()
                end.record()
            self.synchronize()
            times += [begin.elapsed_time(end) * 1e6 for begin, end in events]
        return times

    def profile(self, count: int) -> tuple[float | None, float | None]:
        """Return medians of PyTorch's profiler in ns, on the host and on the device."""
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if self.device.type == "cuda":
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        calls = [self.prepare_call() for _ in range(count)]
        with torch.profiler.profile(activities=kinds, record_shapes=True) as profile:
            for call in calls:
                call()
            self.synchronize()
        events = [event for event in profile.events() if event.name == self._name]
        newer = hasattr(torch.autograd.profiler_util.FunctionEvent, "device_time_total")
        on_device = "device_time_total" if newer else "cuda_time_total"
        host = [event.cpu_time_total * 1e3 for event in events]
        return median_or_none(host), median_or_none([getattr(event, on_device) * 1e3 for event in events])

    def _value(self, argument: Any) -> Any:
        recorded, kind = self._recorded.get(argument.name), _bare(argument)
        if recorded is None:
            if argument.has_default_value():
                if argument.default_value is not None:
                    self.assumed.append(f"{argument.name}={argument.default_value!r}")
                return argument.default_value
            return None
        if _has_tensors(recorded):
            tensors = [self._tensor(tensor, argument.name) for tensor in _tensors(recorded)]
            return tensors if "tensors" in recorded else tensors[0]
        if kind in ("float", "number") and recorded in NOT_FINITE:
            return float(recorded)
        return recorded

    def _tensor(self, described: dict[str, Any], name: str) -> Any:
        """Return a tensor of random values with the memory layout of the run."""
        shape, strides, dtype = described["shape"], described.get("strides"), described.get("dtype")
        if strides is None:
            self.assumed.append(f"{name}: contiguous")
            strides = _contiguous(shape)
        if not dtype:
            dtype = self._other_type()
            self.assumed.append(f"{name}: {dtype}")
        flat = self._random(_extent(shape, strides), getattr(torch, dtype), name)
        return torch.as_strided(flat, shape, strides)

    def _other_type(self) -> str:
        """Return the type of the first tensor with a known type."""
        types = (tensor.get("dtype") for value in self._recorded.values() for tensor in _tensors(value))
        return next(filter(None, types), "float32")

    def _random(self, count: int, dtype: Any, name: str) -> Any:
        if dtype == torch.bool:
            return torch.randint(0, 2, (count,), device=self.device).bool()
        if not (dtype.is_floating_point or dtype.is_complex):
            return self._whole(count, name).to(dtype)
        base = self._name.partition("::")[2].strip("_")
        positive = name in POSITIVE or base.startswith(BETWEEN_0_AND_1)
        kind = torch.complex64 if dtype.is_complex else torch.float32
        values = (torch.rand if positive else torch.randn)(count, dtype=kind, device=self.device)
        return values.to(dtype)

    def _whole(self, count: int, name: str) -> Any:
        """Return whole numbers: valid indices if the input indexes another tensor, otherwise small ones."""
        if name.startswith("cum_seq") and count > 1:  # starts of the sequences of a batch, and its end
            total = self._size("key" if name.endswith("_k") else "query", 0) or 0
            return (torch.arange(count, device=self.device) * total) // (count - 1)
        if not any(part in name for part in INDEX):
            return torch.randint(1, 8, (count,), device=self.device)
        bound = self._bound(name)
        return torch.randint(0, max(bound, 1), (count,), device=self.device)

    def _bound(self, name: str) -> int:
        """Return the exclusive upper bound of such indices; 1 if unknown, so that all are 0."""
        base = self._name.partition("::")[2].strip("_")
        if "offset" in name:
            return 1
        if name.startswith("target"):
            return self._size("self", 1) or self._size("self", 0) or 1
        if base.startswith("embedding"):
            rows = self._recorded.get("num_weights")
            return rows if isinstance(rows, int) else self._size("weight", 0) or 1
        dim = self._recorded.get("dim")
        if isinstance(dim, int):
            return self._size("self", dim) or 1
        return math.prod(self._shape("self")) if base in ("take", "put") else 1

    def _shape(self, name: str) -> list[int]:
        """Return the shape of an input, empty if it is not a tensor."""
        value = self._recorded.get(name)
        return value.get("shape", []) if _has_tensors(value) else []

    def _size(self, name: str, dim: int) -> int | None:
        shape = self._shape(name)
        return shape[dim] if -len(shape) <= dim < len(shape) else None

    def _check_memory(self, arguments: Sequence[Any]) -> None:
        """Check that the inputs fit into the free memory."""
        needed = 0
        for tensor in (tensor for value in arguments for tensor in _tensors(value)):
            size = torch.empty(0, dtype=getattr(torch, tensor.get("dtype") or "float32")).element_size()
            needed += size * _extent(tensor["shape"], tensor.get("strides") or _contiguous(tensor["shape"]))
        free = torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else available_bytes()
        check_memory(needed, free)
        self.max_prepared_calls = max(1, free // 3 // max(needed, 1)) if self.writes else sys.maxsize


def overload_of(name: str, arguments: Sequence[Any]) -> Any:
    """Return the first schema that fits the arguments; schemas with the same number of arguments come first.

    Raises:
        OperatorRejected: No schema fits.
    """
    if not NAME.fullmatch(name) or name.partition("::")[2].strip("_").startswith(UNSAFE):
        raise OperatorRejected(msg("remote.no_operator_run_alone", f"{name!r} is no operator that is run alone"))
    schemas: list[Any] = torch._C._jit_get_schemas_for_operator(name)  # noqa: SLF001 - nothing public lists overloads
    if not schemas:
        raise OperatorRejected(
            msg(
                "remote.pytorch_no_operator_package",
                f"PyTorch {torch.__version__} has no operator {name}: a package that is not imported registers it",
            )
        )
    schemas = sorted(schemas, key=lambda schema: len(schema.arguments) != len(arguments))
    for schema in schemas:
        missing = schema.arguments[len(arguments) :]
        fitting = all(_fits(value, argument) for value, argument in zip(arguments, schema.arguments, strict=False))
        if (
            len(schema.arguments) >= len(arguments)
            and fitting
            and all(argument.has_default_value() for argument in missing)
        ):
            return schema
    nearest = schemas[0]
    for value, argument in zip(arguments, nearest.arguments, strict=False):
        if value is None and not _fits(None, argument):
            raise OperatorRejected(
                msg(
                    "remote.profile_no_value_type",
                    f"{name}: the profile has no value of '{argument.name}', of type {argument.type}",
                )
            )
    raise OperatorRejected(
        msg(
            "remote.no_overload_pytorch_takes",
            f"{name}: no overload of PyTorch {torch.__version__} takes these {len(arguments)} arguments",
        )
    )


def _fits(value: Any, argument: Any) -> bool:
    kind = _bare(argument)
    if value is None:
        return argument.has_default_value() or str(argument.type).startswith("Optional[")
    if _has_tensors(value):
        return kind in ("List[Tensor]", "List[Optional[Tensor]]") if "tensors" in value else kind == "Tensor"
    if _is_list(value):
        element_kind = kind.removeprefix("List[").removesuffix("]") if kind.startswith("List[") else ""
        return element_kind in ("int", "float", "bool", "number") and all(_is(item, element_kind) for item in value)
    return _is(value, kind)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind in ("bool", "number")
    if isinstance(value, int):
        return kind in ("int", "float", "number")
    return kind in ("float", "number")


def _bare(argument: Any) -> str:
    kind = str(argument.type)
    return kind[len("Optional[") : -1] if kind.startswith("Optional[") else kind


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _has_tensors(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _tensors(value: Any) -> list[dict[str, Any]]:
    """Return the tensors of an argument."""
    if not _has_tensors(value):
        return []
    tensors: list[dict[str, Any]] = value.get("tensors", [value])
    return tensors


def _contiguous(shape: list[int]) -> list[int]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return strides


def _extent(shape: list[int], strides: list[int]) -> int:
    """Return the number of elements of the memory that a tensor spans."""
    return 0 if 0 in shape else 1 + sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True))


def _copied(value: Any) -> Any:
    """Return tensors copied to separate memory with the same layout."""
    if _is_list(value):
        return [_copied(item) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    shape, strides = list(value.shape), list(value.stride())
    whole = torch.as_strided(value, [_extent(shape, strides)], [1])
    return torch.as_strided(whole.clone(), shape, strides)


def operator(call: dict[str, Any], device: str, threads: int) -> Operator:
    """Return the operator of a call; `threads`: of the CPU, 0 for PyTorch's choice."""
    if threads > 0:
        torch.set_num_threads(threads)
    return Operator(call["operator"], call["arguments"], device)


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
