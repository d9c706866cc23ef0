"""Run one ONNX Runtime operator alone: a model of that node with inputs like in the run.

Uses onnxruntime, onnx and the standard library: `script.py` creates a file from this module, and agents import it.
"""

import importlib
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard

from visualprof.messages import msg
from visualprof.remote.operators.clock import (
    OperatorRejected,
    available_bytes,
    check_memory,
    first_sentence,
    median_or_none,
    time_on_host,
)

np: Any = importlib.import_module("numpy")
onnx: Any = importlib.import_module("onnx")
ort: Any = importlib.import_module("onnxruntime")

DOMAINS = ("", "com.microsoft", "com.microsoft.nchwc")
IR = 9  # ONNX Runtime reads this version since 1.17
MAX_MODEL_BYTES = 1 << 31  # limit of protobuf
# Operators with an input of indices: the place of the index input, and of the input that it indexes.
PLACES = {
    "Gather": (1, 0),
    "GatherElements": (1, 0),
    "GatherND": (1, 0),
    "ScatterElements": (1, 0),
    "ScatterND": (1, 0),
    "Scatter": (1, 0),
    "EmbedLayerNormalization": (0, 2),
    "GatherBlockQuantized": (1, 0),
}


class Operator:
    """A session of one node. Attributes as in `RunnableOperator`.

    Constants of the recorded model are constants here, so ONNX Runtime packs them in the same way.

    Args:
        call: `operator`; `arguments` by place (`None` if left out); `attributes`; and `form` with `domain`, `opset` and
            `outputs` (a type, or `None` if unused).
        device: The device.
        threads: Number of CPU threads, 0 for ONNX Runtime's choice.

    Raises:
        OperatorRejected: The operator cannot run here.
    """

    def __init__(self, call: dict[str, Any], device: str, threads: int = 0) -> None:
        self._name, self._form = call["operator"], call.get("form", {})
        self._arguments, self._attributes = call["arguments"], call.get("attributes", {})
        domain = self._form.get("domain", "")
        if domain not in DOMAINS:
            raise OperatorRejected(
                msg("remote.domain_which_not_run", f"{self._name} is of the domain {domain!r}, which is not run")
            )
        self.overload = msg("remote.opset", f"{domain or 'ai.onnx'}::{self._name} of opset {self._form.get('opset')}")
        self.assumed: list[str] = []
        self.runtime, self.threads, self.max_prepared_calls = (
            msg("remote.onnx_runtime_2", f"ONNX Runtime {ort.__version__}"),
            threads or os.cpu_count() or 1,
            sys.maxsize,
        )
        self._requested_threads, (self.device_name, self._providers) = threads, _providers(device)
        sizes = [_bytes(argument) for argument in self._arguments if argument is not None]
        check_memory(sum(sizes), available_bytes())
        if (
            sum(_bytes(argument) for argument in self._arguments if argument is not None and argument.get("constant"))
            >= MAX_MODEL_BYTES
        ):
            raise OperatorRejected(
                msg(
                    "remote.weights_take_over_2",
                    f"the weights of {self._name} take over 2 GiB, which a model of one file cannot hold",
                )
            )
        self._random = np.random.default_rng(0)
        self._session, self._binding = self._open(self._options())

    def prepare_call(self) -> Callable[[], Any]:
        """Return one call, with inputs and outputs on the device."""
        run, binding = self._session.run_with_iobinding, self._binding
        return lambda: run(binding)

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        self._binding.synchronize_outputs()

    def check_run(self) -> None:
        """Run the operator once.

        Raises:
            OperatorRejected: ONNX Runtime does not run it here.
        """
        try:
            self.prepare_call()()
            self.synchronize()
        except Exception as error:  # ONNX Runtime's errors have no other common class
            raise OperatorRejected(
                msg("remote.refuses_inputs", f"{self._name} refuses these inputs: {first_sentence(error)}")
            ) from error

    def time_calls(self, count: int) -> tuple[list[float], list[float]]:
        """Return times in ns of calls, and of a session that returns one number."""
        call: dict[str, Any] = {
            "operator": "Identity",
            "arguments": [{"shape": [], "dtype": "float32"}],
            "form": {"opset": 17, "outputs": ["float32"]},
        }
        empty = Operator(call, self.device_name, 1)
        return time_on_host(self.prepare_call, count, self.synchronize), time_on_host(
            empty.prepare_call, count, empty.synchronize
        )

    def profile(self, count: int) -> tuple[float | None, float | None]:
        """Return medians of ONNX Runtime's profiler in ns: of the node, and of all kernels of a run on the device."""
        with tempfile.TemporaryDirectory() as folder:
            events = json.loads(Path(self.record(count + 1, folder)[0]).read_bytes())  # the first run plans memory
        nodes = [event for event in events if event["cat"] == "Node" and event["name"].endswith("_kernel_time")]
        host = [event["dur"] * 1e3 for event in nodes if event["args"].get("op_name") == self._name][1:]
        kernels = [event["dur"] * 1e3 for event in events if event["cat"] == "Kernel"]
        return median_or_none(host), sum(kernels) / (count + 1) if kernels else None

    def record(self, count: int, folder: str) -> tuple[str, int]:
        """Write a profile of some runs. Return its path, and the epoch of its time 0 in ns."""
        options = self._options()
        options.enable_profiling, options.profile_file_prefix = True, os.path.join(folder, "ort_profile")
        session, binding = self._open(options)
        for _ in range(count):
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()
        return session.end_profiling(), int(session.get_profiling_start_time_ns())

    def _options(self) -> Any:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # the node as it ran
        options.intra_op_num_threads = self._requested_threads
        options.log_severity_level = 3
        return options

    def _open(self, options: Any) -> tuple[Any, Any]:
        """Return a session with its inputs bound.

        Raises:
            OperatorRejected: There is no such operator, or not for these types.
        """
        model, feeds = self._model()
        try:
            session = ort.InferenceSession(model.SerializeToString(), options, providers=self._providers)
            binding = session.io_binding()
            kind, _, number = self.device_name.partition(":")
            for name, (value, values) in feeds.items():
                place = ort.OrtValue.ortvalue_from_numpy(values, kind, int(number or 0)) if value is None else value
                binding.bind_ortvalue_input(name, place)
            for output in session.get_outputs():
                binding.bind_output(output.name, kind, int(number or 0))
        except Exception as error:  # ONNX Runtime's errors have no other common class
            raise OperatorRejected(
                msg(
                    "remote.onnx_runtime_not_run",
                    f"ONNX Runtime {ort.__version__} does not run {self.overload}: {first_sentence(error)}",
                )
            ) from error
        return session, binding

    def _model(self) -> tuple[Any, dict[str, Any]]:
        """Return the model, and values of its inputs."""
        helper, names, inputs, weights = onnx.helper, list[str](), list[Any](), list[Any]()
        feeds = dict[str, Any]()
        for place, argument in enumerate(self._arguments):
            names.append("" if argument is None else f"x{place}")
            if argument is None:
                continue
            values, kind = self._values(argument, place), _kind(argument.get("dtype"))
            if argument.get("constant") or "values" in argument:
                weights.append(_weight(values, names[-1], kind))
            else:
                inputs.append(helper.make_tensor_value_info(names[-1], kind, argument["shape"]))
                feeds[names[-1]] = _placed(values, kind)
        output_types = [(f"y{place}", dtype) for place, dtype in enumerate(self._form.get("outputs", ["float32"]))]
        outputs = [helper.make_tensor_value_info(name, _kind(dtype), None) for name, dtype in output_types if dtype]
        attributes = {key: self._attribute(value) for key, value in self._attributes.items()}
        output_names = [name if dtype else "" for name, dtype in output_types]
        try:
            node = helper.make_node(
                self._name, names, output_names, name="node", domain=self._form.get("domain", ""), **attributes
            )
        except (ValueError, TypeError) as error:
            raise OperatorRejected(
                msg(
                    "remote.attribute_onnx_not_take",
                    f"{self._name} has an attribute that ONNX does not take: {first_sentence(error)}",
                )
            ) from error
        graph = helper.make_graph([node], "operator", inputs, outputs, weights)
        domains = {self._form.get("domain", ""): self._form.get("opset", 17)}
        opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR), feeds

    def _attribute(self, value: Any) -> Any:
        """Return a tensor attribute by its values, other attributes unchanged."""
        if not _is_tensor(value):
            return value
        return _weight(self._values(value, -1), "value", _kind(value["dtype"]))

    def _values(self, argument: dict[str, Any], place: int) -> Any:
        """Return values of an input: values of the call, or random numbers from 0 to 1, or valid indices."""
        shape, dtype = argument["shape"], argument.get("dtype") or "float32"
        if "values" in argument:
            try:
                return np.array(argument["values"], np.float32 if dtype == "bfloat16" else dtype).reshape(shape)
            except (ValueError, OverflowError) as error:
                raise OperatorRejected(
                    msg(
                        "remote.values_input_none_type",
                        f"values of input {place} of {self._name} are none of its type: {error}",
                    )
                ) from error
        if dtype == "bool":
            return np.asarray(self._random.random(shape) < 0.5)
        if dtype.startswith(("int", "uint")):
            least, most = self._bounds(place)
            return np.asarray(self._random.integers(least, most, shape), dtype)
        return np.asarray(self._random.random(shape, np.float32), "float32" if dtype == "bfloat16" else dtype)

    def _bounds(self, place: int) -> tuple[int, int]:
        """Return the range of whole numbers of an input: valid indices of another input, otherwise small numbers."""
        index_input, data_input = PLACES.get(self._name, (-1, -1))
        if place != index_input:
            return 1, 8
        shape: list[int] = (
            self._arguments[data_input]["shape"]
            if data_input < len(self._arguments) and self._arguments[data_input]
            else []
        )
        axis = self._attributes.get("axis", 0)
        is_valid_axis = isinstance(axis, int) and -len(shape) <= axis < len(shape)
        return 0, max(1, min(shape, default=1) if self._name.endswith("ND") else shape[axis] if is_valid_axis else 1)


def _providers(device: str) -> tuple[str, list[Any]]:
    """Return the device's name and its execution providers.

    Raises:
        OperatorRejected: This ONNX Runtime has no provider for the device.
    """
    if device == "cpu":
        return "cpu", ["CPUExecutionProvider"]
    kind, _, number = device.partition(":")
    if kind != "cuda" or "CUDAExecutionProvider" not in ort.get_available_providers():
        raise OperatorRejected(
            msg(
                "remote.onnx_runtime_no_provider",
                f"this ONNX Runtime has no provider for {device}: {', '.join(ort.get_available_providers())}",
            )
        )
    return f"cuda:{number or 0}", [("CUDAExecutionProvider", {"device_id": int(number or 0), "use_tf32": 0})]


def _is_tensor(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _kind(dtype: Any) -> int:
    """Return ONNX's number of a type.

    Raises:
        OperatorRejected: ONNX does not have the type.
    """
    names = {"float32": "FLOAT", "float64": "DOUBLE"}
    number = getattr(onnx.TensorProto, names.get(str(dtype), str(dtype).upper()), None)
    if not isinstance(number, int):
        raise OperatorRejected(msg("remote.onnx_no_type", f"ONNX has no type {dtype}"))
    return number


def _bytes(tensor: dict[str, Any]) -> int:
    dtype = tensor.get("dtype") or "float32"
    return math.prod(tensor["shape"]) * (4 if dtype == "bfloat16" else np.dtype(dtype).itemsize)


def _weight(values: Any, name: str, kind: int) -> Any:
    """Return a constant of a model."""
    if kind == onnx.TensorProto.BFLOAT16:
        raw = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        return onnx.helper.make_tensor(name, kind, values.shape, raw, raw=True)
    return onnx.numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), name)


def _placed(values: Any, kind: int) -> tuple[Any, Any]:
    """Return an OrtValue if numpy lacks the type, otherwise `None`, and the values."""
    if kind != onnx.TensorProto.BFLOAT16:
        return None, values
    raw = (values.view(np.uint32) >> 16).astype(np.uint16)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, kind), values


def operator(call: dict[str, Any], device: str, threads: int) -> Operator:
    """Return the operator of a call; `threads`: of the CPU, 0 for ONNX Runtime's choice."""
    return Operator(call, device, threads)


DEVICE = "cuda" if "CUDAExecutionProvider" in ort.get_available_providers() else "cpu"
