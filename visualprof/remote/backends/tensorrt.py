"""TensorRT on CUDA: engines (`.engine`), and ONNX, from which it builds one engine per size."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.backends import (
    ONNX,
    Backend,
    Feeds,
    FileFormat,
    ProfileFile,
    Session,
    check_inputs,
    resolve_options,
)
from visualprof.remote.protocol import Precision, Spec, TaskFailure

OPTIONS = {"effort": ("3", "0", "1", "2", "4", "5")}  # builder optimization level: a higher level searches longer
FLAGS: dict[Precision, str] = {"f16": "FP16", "bf16": "BF16"}
WARM_UP = 5

Sizes = Mapping[str, Sequence[int]]


def build_engine(
    trt: Any, path: Path, sizes: Mapping[str, Sequence[Sequence[int]]], precision: str, effort: str
) -> bytes:
    """Return an engine of an ONNX model.

    Args:
        trt: The module tensorrt.
        path: The model.
        sizes: Minimum, optimum and maximum size of each input.
        precision: Precision of a run configuration, for operators where the builder finds it faster.
        effort: Level of the builder.

    Raises:
        TaskFailure: TensorRT does not support the model or the precision.
    """
    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(path)):
        errors = "; ".join(str(parser.get_error(i)) for i in range(parser.num_errors))
        raise TaskFailure(
            "model_error", msg("backends.tensorrt_not_read_model", f"TensorRT does not read this model: {errors[:300]}")
        )
    check_inputs(sizes, [network.get_input(i).name for i in range(network.num_inputs)])
    config = builder.create_builder_config()
    config.builder_optimization_level = int(effort)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if precision != "auto":
        config.clear_flag(trt.BuilderFlag.TF32)  # on by default
    if precision in FLAGS:
        if not hasattr(trt.BuilderFlag, FLAGS[precision]):
            error = msg(
                "backends.tensorrt_computes_model_says", f"this TensorRT computes as the model says, not in {precision}"
            )
            raise TaskFailure(
                "model_error",
                error,
                msg("backends.convert_model_itself_submit_2", "convert the model itself and submit that"),
            )
        config.set_flag(getattr(trt.BuilderFlag, FLAGS[precision]))
    profile = builder.create_optimization_profile()
    for name, (least, usual, most) in sizes.items():
        profile.set_shape(name, tuple(least), tuple(usual), tuple(most))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise TaskFailure(
            "model_error",
            msg("backends.tensorrt_built_no_engine", "TensorRT built no engine for this model"),
            msg("backends.log_says_why", "the log says why"),
        )
    return bytes(plan)


class TensorRtSession(Session):
    """An engine with its memory.

    Args:
        plan: Returns the engine for the sizes of the inputs.
        spec: The run configuration.
        settings: Effective settings.
    """

    def __init__(self, plan: Callable[[Sizes], bytes], spec: Spec, settings: dict[str, str]) -> None:
        self._trt: Any = importlib.import_module("tensorrt")
        self._cuda: Any = importlib.import_module("cuda.bindings.runtime")
        self._plan, self._spec, self._settings = plan, spec, settings
        self._checked(self._cuda.cudaSetDevice(spec.device_number))
        self._stream = self._checked(self._cuda.cudaStreamCreate())
        self._engines: dict[str, Any] = {}
        self._memory: list[Any] = []
        self.context: Any = None
        self.engine: Any = None
        self._outputs: dict[str, tuple[Any, Any]] = {}  # place on the device, array

    def _checked(self, answer: Any) -> Any:
        """Return the result of a CUDA call.

        Raises:
            RuntimeError: The call failed.
        """
        error, *values = answer
        if int(error):
            raise RuntimeError(msg("backends.cuda", f"CUDA: {error}"))
        return values[0] if values else None

    def _place(self, array: Any) -> Any:
        place = self._checked(self._cuda.cudaMalloc(max(array.nbytes, 1)))
        self._memory.append(place)
        return place

    def prepare(self, feeds: Feeds) -> Any:
        """Select the engine for these sizes, and copy the inputs to the device."""
        np: Any = importlib.import_module("numpy")
        sizes = {name: values.shape for name, values in feeds.items()}
        key = json.dumps(sizes)
        if key not in self._engines:
            runtime = self._trt.Runtime(self._trt.Logger(self._trt.Logger.WARNING))
            engine = runtime.deserialize_cuda_engine(self._plan(sizes))
            if engine is None:
                error = msg("backends.tensorrt_not_load_engine", "this TensorRT does not load the engine")
                raise TaskFailure(
                    "model_error",
                    error,
                    msg(
                        "backends.engine_runs_version_gpu",
                        "an engine runs on the version and GPU that it was built for",
                    ),
                )
            self._engines[key] = engine, engine.create_execution_context()
        self.engine, self.context = self._engines[key]
        self._free()
        inputs = [name for name, given in _tensors(self._trt, self.engine) if given]
        check_inputs(feeds, inputs)
        host_to_device = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        for name, values in feeds.items():
            array = np.ascontiguousarray(values)
            place = self._place(array)
            self._checked(self._cuda.cudaMemcpy(place, array.ctypes.data, array.nbytes, host_to_device))
            if not self.context.set_input_shape(name, array.shape):
                error = msg(
                    "backends.engine_not_take_input", f"the engine does not take {list(array.shape)} for input '{name}'"
                )
                raise TaskFailure(
                    "input_error", error, msg("backends.built_other_sizes", "it was built for other sizes")
                )
            self.context.set_tensor_address(name, int(place))
        self._outputs = {}
        for name, given in _tensors(self._trt, self.engine):
            if not given:
                kind = self._trt.nptype(self.engine.get_tensor_dtype(name))
                array = np.empty(tuple(self.context.get_tensor_shape(name)), kind)
                self._outputs[name] = self._place(array), array
                self.context.set_tensor_address(name, int(self._outputs[name][0]))
        return None

    def infer(self, prepared: Any) -> Any:
        """Run once and wait for the device."""
        if not self.context.execute_async_v3(int(self._stream)):
            raise RuntimeError(msg("backends.tensorrt_did_not_run", "TensorRT did not run the engine"))
        self._checked(self._cuda.cudaStreamSynchronize(self._stream))

    def fetch(self, outputs: Any) -> list[Any]:
        """Copy the outputs to the host."""
        device_to_host = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        for place, array in self._outputs.values():
            self._checked(self._cuda.cudaMemcpy(array.ctypes.data, place, array.nbytes, device_to_host))
        return [array.copy() for _, array in self._outputs.values()]

    def effective(self) -> dict[str, str]:
        """Return precision, device and options."""
        return {**self._settings, "device": self._spec.device}

    def operator_placement(self) -> dict[str, dict[str, int]]:
        """Return the number of the engine's layers, all of which run on its GPU."""
        return {self._spec.device: {"Layer": int(self.engine.num_layers)}}

    def _free(self) -> None:
        while self._memory:
            self._checked(self._cuda.cudaFree(self._memory.pop()))

    def close(self) -> None:
        """Free the memory."""
        self._free()


def _tensors(trt: Any, engine: Any) -> Iterator[tuple[str, bool]]:
    """Yield the names of an engine's tensors, and whether each is an input."""
    for i in range(engine.num_io_tensors):
        name = str(engine.get_tensor_name(i))
        yield name, engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT


def devices() -> list[str]:
    """Return each CUDA device."""
    cuda: Any = importlib.import_module("cuda.bindings.runtime")
    error, count = cuda.cudaGetDeviceCount()
    return [] if int(error) else [f"cuda:{i}" for i in range(count)]


def load(path: Path, spec: Spec, feeds: Feeds) -> TensorRtSession:
    """Read an engine, or build one from an ONNX model for the sizes of the feeds; other sizes when they occur."""
    options = resolve_options(spec, OPTIONS)
    trt: Any = importlib.import_module("tensorrt")
    if not spec.device.startswith("cuda"):
        raise TaskFailure(
            "model_error",
            msg("backends.tensorrt_no_device", f"TensorRT has no device {spec.device}"),
            msg("backends.runs_cuda", "it runs on cuda"),
        )
    saved = path.read_bytes() if path.suffix == ".engine" else b""
    if saved and spec.precision:
        error = msg(
            "backends.spec_engine_precision_built",
            f"spec '{spec.id}': an engine has the precision that it was built with",
        )
        raise TaskFailure(
            "input_error", error, msg("backends.leave_empty_submit_onnx", "leave it empty, or submit the .onnx")
        )

    def plan(sizes: Sizes) -> bytes:
        return saved or build_engine(
            trt, path, {n: [s] * 3 for n, s in sizes.items()}, spec.precision, options["effort"]
        )

    own = (
        msg("backends.built", "as built")
        if saved
        else msg("backends.model_tf32_allowed", "as the model, tf32 allowed")
        if spec.precision == "auto"
        else msg("backends.model", "as the model")
    )
    precision = msg("backends.where_faster", f"{spec.precision} where it is faster") if spec.precision in FLAGS else own
    settings = {"precision": precision, "form": "engine"} if saved else {"precision": precision, **options}
    session = TensorRtSession(plan, spec, settings)
    session.prepare(feeds)
    return session


def layers(path: Path, spec: Spec, feeds: Feeds, runs: int, out: Path) -> list[ProfileFile]:
    """Write `profile.json` and `layers.json` like trtexec with --exportProfile and --exportLayerInfo."""
    trt: Any = importlib.import_module("tensorrt")
    session = load(path, spec, feeds)
    prepared = session.prepare(feeds)
    for _ in range(WARM_UP):
        session.infer(prepared)
    taken: dict[str, float] = {}

    class Layers(trt.IProfiler):
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            taken[layer_name] = taken.get(layer_name, 0.0) + ms

    session.context.profiler = Layers()
    for _ in range(runs):
        session.infer(prepared)
    rows = [{"name": name, "timeMs": ms, "averageMs": ms / runs} for name, ms in taken.items()]
    (out / "profile.json").write_text(json.dumps([{"count": runs}, *rows]), "utf-8")
    inspector = session.engine.create_engine_inspector()
    (out / "layers.json").write_text(inspector.get_engine_information(trt.LayerInformationFormat.JSON), "utf-8")
    session.close()
    return [ProfileFile("profile.json")]


ENGINE = FileFormat(
    "tensorrt", msg("backends.tensorrt_engine", "TensorRT engine"), (".engine",)
)  # only its runtime can read its inputs
BACKEND = Backend(
    name="tensorrt",
    package="tensorrt",
    module="tensorrt",
    files=(ONNX, ENGINE),
    devices=devices,
    load=load,
    passes={"layers": layers},
    precisions=("auto", "f32", *FLAGS),
    options=OPTIONS,
    requires=("numpy", "cuda-python"),
    short="trt",
    cpu=False,
    concurrent_sessions=False,  # a context has one address per input
)
