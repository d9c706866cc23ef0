"""Run one MegEngine operator alone, with inputs like in the run, and the profiler of a graph of it.

Uses MegEngine and the standard library: `script.py` creates a file from this module, and agents import it.
"""

import importlib
import math
import re
import sys
from collections.abc import Callable
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
mge: Any = importlib.import_module("megengine")
builtin: Any = importlib.import_module("megengine.core.ops.builtin")
core: Any = importlib.import_module("megengine.core._imperative_rt.core2")
ops: Any = importlib.import_module("megengine.core._imperative_rt.ops")
jit: Any = importlib.import_module("megengine.jit")

NAME = re.compile(r"[A-Za-z]\w{0,99}", re.ASCII)
FORWARD = "Forward"  # suffix of operators of a graph, which the names in `builtin` do not have
# Operators that read files, communicate with other processes, or run custom code.
UNSAFE = re.compile(r"Runtime|Extern|Remote|Collective|Barrier|Custom|Local|ParamPack|Load|IO")
TRANSFERS = ("InputCallback", "OutputCallback", "Host2DeviceCopy", "ImmutableTensor")
SHAPED = ("Reshape", "Broadcast", "Reduce")  # a second input is the shape of the output
INDEXED = ("IndexingMultiAxisVec", "IndexingOneHot", "Subtensor")
PLACES = ("begin", "end", "step", "idx")  # the parts of an index item, after its axis


class Operator:
    """An operator with its inputs on a device. Attributes as in `RunnableOperator`.

    Args:
        call: `operator`, `arguments`, `attributes`, and `form` with `outputs` (shapes of the run) and `items` of an
            index.
        device: The device.

    Raises:
        OperatorRejected: The operator cannot run here.
    """

    def __init__(self, call: dict[str, Any], device: str) -> None:
        self._name, self._form = call["operator"].removesuffix(FORWARD), call.get("form", {})
        self._arguments, self._attributes = call["arguments"], call.get("attributes", {})
        self.overload, self.assumed = f"megengine.core.ops.builtin.{self._name}", list[str]()
        self.device_name, self.runtime, self.threads = device, f"MegEngine {mge.__version__}", 1
        self.max_prepared_calls = sys.maxsize
        self._choose(device)
        check_memory(sum(4 * math.prod(argument["shape"]) for argument in self._arguments), available_bytes())
        self._random = np.random.default_rng(0)
        self._operator = self._build_operator()
        self._tensors = [mge.Tensor(self._values(place)) for place in range(len(self._arguments))]

    def prepare_call(self) -> Callable[[], Any]:
        """Return one call."""
        operator, tensors, apply = self._operator, self._tensors, core.apply
        return lambda: apply(operator, *tensors)

    def synchronize(self) -> None:
        """Wait until all work has finished."""
        mge._full_sync()  # noqa: SLF001 - nothing public waits for all

    def check_run(self) -> None:
        """Run the operator once.

        Raises:
            OperatorRejected: MegEngine does not run it here, or its outputs have other shapes than in the run.
        """
        try:
            shapes = [[*map(int, tuple(output.shape))] for output in self.prepare_call()()]
            self.synchronize()
        except Exception as error:  # MegEngine raises many classes of errors
            raise OperatorRejected(
                msg("remote.refuses_inputs", f"{self._name} refuses these inputs: {first_sentence(error)}")
            ) from error
        wanted = self._form.get("outputs") or shapes
        if not any(shape in wanted or (shape or [1]) in wanted for shape in shapes):
            raise OperatorRejected(
                msg(
                    "remote.gives_not_run_profile",
                    f"{self._name} gives {shapes[0]}, not as in the run: the profile lacks a parameter",
                )
            )

    def time_calls(self, count: int) -> tuple[list[float], list[float]]:
        """Return times in ns of calls, and of empty calls."""
        return time_on_host(self.prepare_call, count, self.synchronize), time_on_host(
            lambda: do_nothing, count, self.synchronize
        )

    def profile(self, count: int) -> tuple[float | None, float | None]:
        """Return the median ns on the device from the profiler of a graph of this operator. It has no host times."""
        try:
            return None, median_or_none([_device_ns(profile) for profile in self.static_profiles(count)])
        except RuntimeError:  # a graph takes shapes only as tensors
            return None, None

    def static_profiles(self, count: int) -> list[dict[str, Any]]:
        """Return static profiles of some runs."""
        apply, operator = core.apply, self._operator

        def run(*tensors: Any) -> Any:
            return apply(operator, *tensors)[0]

        traced = jit.trace(run, symbolic=True, profiling=True)
        profiles = list[dict[str, Any]]()
        for number in range(count + 2):  # the first is traced, the second compiled
            traced(*self._tensors)
            self.synchronize()
            if number > 1:
                profiles.append(traced.get_profile())
        return profiles

    def _choose(self, device: str) -> None:
        """Select the device.

        Raises:
            OperatorRejected: MegEngine does not see the device.
        """
        kind, _, number = device.partition(":")
        if kind == "cuda" and int(number or 0) >= mge.get_device_count("gpu"):
            raise OperatorRejected(msg("remote.megengine_sees_no_device", f"this MegEngine sees no device {device}"))
        mge.set_default_device("cpu0" if kind == "cpu" else f"gpu{number or 0}")

    def _build_operator(self) -> Any:
        """Return the operator with its parameters.

        Raises:
            OperatorRejected: There is no such operator, or it rejects its parameters.
        """
        kind = getattr(builtin, self._name, None) if NAME.fullmatch(self._name) else None
        if not isinstance(kind, type) or UNSAFE.search(self._name) or not issubclass(kind, ops.OpDef):
            raise OperatorRejected(
                msg(
                    "remote.megengine_no_operator_run",
                    f"MegEngine {mge.__version__} has no operator {self._name} that is run alone",
                )
            )
        try:
            default: Any = kind()
            names = {name for name in dir(default) if name[0].islower() and name != "scope"}
            parameters = {
                name: value
                for name, value in {**self._attributes, **self._derived_parameters()}.items()
                if name in names
            }
            for name, value in parameters.items():
                if isinstance(getattr(default, name), bool):
                    parameters[name] = bool(value)
            self._assume(names - parameters.keys(), default)
            return kind(**parameters)
        except (TypeError, ValueError, RuntimeError) as error:
            raise OperatorRejected(
                msg("remote.not_take_parameters", f"{self._name} does not take its parameters: {first_sentence(error)}")
            ) from error

    def _derived_parameters(self) -> dict[str, Any]:
        """Return parameters that the profile does not contain, derived from the shapes of the run."""
        shapes: list[list[int]] = [argument["shape"] for argument in self._arguments]
        outputs: list[list[int]] = self._form.get("outputs") or [[]]
        if self._name == "LayerNorm":
            sides = shapes[1] if len(shapes) > 1 else shapes[0][len(([*outputs, []])[1]) :]
            return {"affine": len(shapes) > 1, "normalized_dim": len(sides), "normalized_size": math.prod(sides)}
        if self._name.endswith("MatrixMul") and len(shapes) > 1:
            return {"dimA": len(shapes[0]), "dimB": len(shapes[1])}
        if self._name in ("RemoveAxis", "AddAxis"):
            return {"axis": _axes(shapes[0], outputs[0], removed=self._name == "RemoveAxis")}
        if self._name in ("Reshape", "Broadcast") and len(shapes) == 1:
            return {"shape": outputs[0]}
        items = [(item[0], *map(bool, item[1:])) for item in self._form.get("items", [])]
        return {"items": items} if items else {}

    def _assume(self, names: set[str], default: Any) -> None:
        """Record which parameters that affect the result have their defaults."""
        missing = sorted(names & {"axis", "eps", "epsilon"}) if self._name not in (*SHAPED, "GetVarShape") else []
        self.assumed += [f"{name}={getattr(default, name)!r}" for name in missing]

    def _values(self, place: int) -> Any:
        """Return values of an input: random numbers from 0 to 1, a shape, or valid indices."""
        argument = self._arguments[place]
        shape, dtype = argument["shape"], argument.get("dtype")
        outputs: list[list[int]] = self._form.get("outputs", [])
        if place and self._name in SHAPED and outputs:
            return np.array(outputs[0], "int32")
        if place and self._name in INDEXED:
            return np.asarray(self._index(place), "int32")
        if dtype is None:
            dtype = self._other_type()
            self.assumed.append(msg("remote.input", f"input {place}: {dtype}"))
        if dtype == "bool":
            return np.asarray(self._random.random(shape) < 0.5)
        if dtype.startswith(("int", "uint")):
            return np.asarray(self._random.integers(1, 8, shape), dtype)
        if dtype == "bfloat16":
            raise OperatorRejected(
                msg("remote.inputs_type_bfloat16_cannot", "inputs of type bfloat16 cannot be made by numpy")
            )
        return np.asarray(self._random.random(shape, np.float32), dtype)

    def _other_type(self) -> str:
        """Return the type of the first input with a known type."""
        dtypes: list[str] = [argument["dtype"] for argument in self._arguments if argument.get("dtype")]
        return [*dtypes, "float32"][0]

    def _index(self, place: int) -> Any:
        """Return an index of the first input: valid positions, and for a slice the whole axis."""
        source_shape, shape = self._arguments[0]["shape"], self._arguments[place]["shape"]
        if self._name == "IndexingOneHot":
            return self._random.integers(0, max(1, source_shape[self._attributes.get("axis", -1)]), shape)
        pieces = [
            (item[0], part)
            for item in self._form.get("items", [])
            for part, on in zip(PLACES, item[1:], strict=True)
            if on
        ]
        if place > len(pieces):
            raise OperatorRejected(
                msg("remote.profile_not_say_what", f"{self._name}: the profile does not say what input {place} is")
            )
        axis, part = pieces[place - 1]
        if part == "idx":
            return self._random.integers(0, max(1, source_shape[axis]), shape)
        removed = sum(kind == "idx" and at < axis for at, kind in pieces)
        outputs = self._form.get("outputs") or [source_shape]
        return np.full(shape, {"begin": 0, "step": 1, "end": [*outputs[0], *source_shape][axis - removed]}[part])


def _axes(before: list[int], after: list[int], *, removed: bool) -> list[int]:
    """Return the axes of size 1 that are removed or added, one after the other."""
    left, rest, axes = list(before if removed else after), list(after if removed else before), list[int]()
    place = 0
    while place < len(left):
        if place < len(rest) and left[place] == rest[place]:
            place += 1
        elif removed:
            axes.append(place)
            left.pop(place)
        else:
            axes.append(place)
            rest.insert(place, left[place])
            place += 1
    return axes


def _device_ns(profile: dict[str, Any]) -> float:
    """Return the device time of a run in ns, without transfers of tensors."""
    operators: dict[str, Any] = profile.get("graph_exec", {}).get("operator", {})
    spans: dict[str, Any] = profile.get("profiler", {}).get("device", {})
    device_lanes = [spans[name] for name in spans if operators.get(name, {}).get("type") not in (*TRANSFERS, None)]
    return sum((span["end"] - span["start"]) * 1e9 for lanes in device_lanes for span in lanes.values())


def operator(call: dict[str, Any], device: str, _threads: int) -> Operator:
    """Return the operator of a call. A CPU uses one thread."""
    return Operator(call, device)


DEVICE = "cuda" if mge.is_cuda_available() else "cpu"
