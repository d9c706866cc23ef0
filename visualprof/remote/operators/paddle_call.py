"""Run one Paddle operator alone, with inputs like in the run and default attributes.

Uses Paddle and the standard library: `script.py` creates a file from this module.
"""

import importlib
import inspect
import json
import math
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.operators.clock import (
    OperatorRejected,
    available_bytes,
    check_memory,
    do_nothing,
    first_sentence,
    median_or_none,
    time_on_host,
)

np: Any = importlib.import_module("numpy")
paddle: Any = importlib.import_module("paddle")

NAME = re.compile(r"[a-z][a-z0-9_]{0,99}", re.ASCII)
UNSAFE = re.compile(r"save|load|print|program|func|send|recv|reduce_scatter|all_|barrier|seed|set_|enable|disable")
RENAMED = {
    "elementwise_add": "add",
    "elementwise_sub": "subtract",
    "elementwise_mul": "multiply",
    "elementwise_div": "divide",
}
PLACES = ("embedding", "gather", "index_select")  # the second input indexes the first


class Operator:
    """An operator with its inputs on a device. Attributes as in `RunnableOperator`.

    Raises:
        OperatorRejected: The operator cannot run here.
    """

    def __init__(self, call: dict[str, Any], device: str) -> None:
        self._name, self._arguments = call["operator"], call["arguments"]
        self.assumed: list[str] = []
        self.device_name, self.threads, self.max_prepared_calls = device, 1, sys.maxsize
        self.runtime = f"Paddle {paddle.__version__}"
        self._call = self._find_function()
        check_memory(
            8 * sum(math.prod(tensor["shape"]) for value in self._arguments for tensor in _tensors(value)),
            available_bytes(),
        )
        paddle.set_device(device.replace("cuda", "gpu"))
        self._random = np.random.default_rng(0)
        self._values = [self._value(place, argument) for place, argument in enumerate(self._arguments)]

    def prepare_call(self) -> Callable[[], Any]:
        """Return one call."""
        call, values = self._call, self._values
        return lambda: call(*values)

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        if self.device_name != "cpu":
            paddle.device.synchronize()

    def check_run(self) -> None:
        """Run the operator once.

        Raises:
            OperatorRejected: Paddle does not run it on these inputs.
        """
        try:
            self.prepare_call()()
            self.synchronize()
        except Exception as error:  # Paddle raises many classes of errors
            raise OperatorRejected(
                msg("remote.refuses_inputs", f"{self.overload} refuses these inputs: {first_sentence(error)}")
            ) from error

    def time_calls(self, count: int) -> tuple[list[float], list[float]]:
        """Return times in ns of calls, and of empty calls."""
        return time_on_host(self.prepare_call, count, self.synchronize), time_on_host(
            lambda: do_nothing, count, self.synchronize
        )

    def profile(self, count: int) -> tuple[float | None, float | None]:
        """Return medians of Paddle's profiler in ns: of the operator, and of all kernels of a run on the device."""
        tools, run = importlib.import_module("paddle.profiler"), self.prepare_call()
        targets = [tools.ProfilerTarget.CPU] + ([tools.ProfilerTarget.GPU] if self.device_name != "cpu" else [])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "profile.json")
            profiler = tools.Profiler(targets=targets, on_trace_ready=_ignore_trace)
            profiler.start()
            for _ in range(count):
                run()
            self.synchronize()
            profiler.stop()
            profiler.export(str(file), format="json")
            events = [event for event in json.loads(file.read_bytes())["traceEvents"] if "args" in event]
        host, device = ([_ns(event) for event in events if event.get("cat") == kind] for kind in ("Operator", "Kernel"))
        return median_or_none(host), sum(device) / count if device else None

    def _find_function(self) -> Any:
        """Return Paddle's function of that name if it is an operator.

        Raises:
            OperatorRejected: There is no such operator.
        """
        name = RENAMED.get(self._name, re.sub(r"_v2$|2$", "", self._name))
        is_operator = NAME.fullmatch(name) and not UNSAFE.search(name) and hasattr(paddle._C_ops, name)  # noqa: SLF001
        function = getattr(paddle, name, None) or getattr(paddle.nn.functional, name, None) if is_operator else None
        if not inspect.isfunction(function):
            raise OperatorRejected(
                msg(
                    "remote.paddle_no_operator_run",
                    f"Paddle {paddle.__version__} has no operator {self._name} that is run alone",
                )
            )
        self.overload = f"paddle.{name}" if hasattr(paddle, name) else f"paddle.nn.functional.{name}"
        parameters = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name not in ("name", "out")
        ]
        rest = parameters[len(self._arguments) :]
        if missing := next(
            (
                parameter.name
                for parameter in rest
                if parameter.default is parameter.empty and parameter.kind < parameter.VAR_POSITIONAL
            ),
            "",
        ):
            raise OperatorRejected(
                msg("remote.profile_no_value", f"{self._name}: the profile has no value of '{missing}'")
            )
        self.assumed += [
            f"{parameter.name}={parameter.default!r}" for parameter in rest if parameter.default is not parameter.empty
        ]
        return function

    def _value(self, place: int, argument: dict[str, Any]) -> Any:
        if "tensors" in argument:
            return [self._value(place, tensor) for tensor in argument["tensors"]]
        shape, dtype = argument["shape"], argument["dtype"] or "float32"
        if argument["dtype"] is None:
            self.assumed.append(msg("remote.input", f"input {place}: {dtype}"))
        if dtype == "bool":
            return paddle.to_tensor(np.asarray(self._random.random(shape) < 0.5))
        if dtype.startswith(("int", "uint")):
            points = place == 1 and self._name.startswith(PLACES)
            least, most = (0, max(1, self._arguments[0]["shape"][0])) if points else (1, 8)
            return paddle.to_tensor(np.asarray(self._random.integers(least, most, shape), dtype))
        return paddle.to_tensor(np.asarray(self._random.random(shape, np.float32))).astype(dtype)


def _ignore_trace(_profiler: Any) -> None:
    return


def _tensors(value: dict[str, Any]) -> list[dict[str, Any]]:
    tensors: list[dict[str, Any]] = value.get("tensors", [value])
    return tensors


def _ns(event: dict[str, Any]) -> float:
    """Return the duration of an event. Its arguments have the digits that `dur` lost."""
    begin, end = (str(event["args"].get(key, "")).removesuffix(" us") for key in ("start_time", "end_time"))
    return ((float(end) - float(begin)) if begin and end else float(event["dur"])) * 1e3


def operator(call: dict[str, Any], device: str, _threads: int) -> Operator:
    """Return the operator of a call. Paddle chooses the number of threads."""
    return Operator(call, device)


DEVICE = "cuda" if paddle.device.is_compiled_with_cuda() else "cpu"
