"""ONNX Runtime: .onnx on CPU and CUDA."""

from __future__ import annotations

import ctypes
import importlib
import json
import logging
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.backends import (
    ONNX,
    Backend,
    Feeds,
    OperatorSession,
    ProfileFile,
    Session,
    call_format,
    check_inputs,
    count_operators,
    integer_option,
    resolve_options,
)
from visualprof.remote.operators import call_file
from visualprof.remote.protocol import Spec, TaskFailure

# The first value is the default.
OPTIONS: dict[str, tuple[str, ...]] = {
    "optimization": ("all", "extended", "basic", "disable"),
    "execution": ("sequential", "parallel"),
    "inter_op_threads": (),  # for parallel execution
    "disabled_optimizers": (),  # ONNX Runtime's names, separated by commas
}
LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "disable": "ORT_DISABLE_ALL",
}
CONVERTED = {"f16": "f16 (converted)", "int8": "int8 (weights; activations while it runs)"}
Places = Callable[[], dict[str, dict[str, int]]]
RUN = ("model_run", "SequentialExecutor::Execute")


class OnnxRuntimeSession(Session):
    """A session on the CPU: inputs and outputs are numpy arrays."""

    def __init__(self, session: Any, settings: dict[str, str], places: Places) -> None:
        self.operator_placement = places
        self._session = session
        self._run = session.run
        self._settings = settings

    def infer(self, prepared: Any) -> Any:
        """Run once."""
        return self._run(None, prepared)

    def effective(self) -> dict[str, str]:
        """Return providers, options and threads."""
        return {**self._settings, "providers": ", ".join(self._session.get_providers())}


class CudaSession(OnnxRuntimeSession):
    """A session on CUDA: inputs and outputs are bound to the device, so that a run copies nothing."""

    def __init__(self, session: Any, settings: dict[str, str], places: Places, number: int) -> None:
        super().__init__(session, settings, places)
        self._number = number

    def prepare(self, feeds: Feeds) -> Any:
        """Return a binding with the inputs on the device."""
        ort: Any = importlib.import_module("onnxruntime")
        binding = self._session.io_binding()
        for name, values in feeds.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(values, "cuda", self._number))
        for output in self._session.get_outputs():
            binding.bind_output(output.name, "cuda", self._number)
        binding.synchronize_inputs()
        return binding

    def infer(self, prepared: Any) -> Any:
        """Run once and wait for the device."""
        self._session.run_with_iobinding(prepared)
        prepared.synchronize_outputs()
        return prepared

    def fetch(self, outputs: Any) -> list[Any]:
        """Copy the outputs to the host."""
        return list(outputs.copy_outputs_to_cpu())


def devices() -> list[str]:
    """Return the CPU, and each CUDA device if the build supports CUDA."""
    ort: Any = importlib.import_module("onnxruntime")
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return ["cpu"]
    return ["cpu", *(f"cuda:{i}" for i in range(_cuda_count()))]


def load(path: Path, spec: Spec, feeds: Feeds) -> Session:
    """Read and optimize the model."""
    if call_file.is_call(path, "onnxruntime"):
        return OperatorSession(path, spec)
    options = resolve_options(spec, OPTIONS)
    own = (
        msg("backends.model_tf32_allowed", "as the model, tf32 allowed")
        if spec.precision == "auto" and spec.device != "cpu"
        else msg("backends.model", "as the model")
    )
    precision = CONVERTED.get(spec.precision, own)
    settings = {
        "precision": precision,
        "threads": str(spec.threads or msg("backends.runtime_chooses", "as the runtime chooses")),
        **options,
    }
    settings = {name: value for name, value in settings.items() if value}
    inner = _open(path, spec, feeds, _session_options(spec, options))
    return _session(inner, spec, settings, partial(_places, path, spec, feeds))


def _places(path: Path, spec: Spec, feeds: Feeds) -> dict[str, dict[str, int]]:
    """Return operators by provider, including copies between devices, as a run of another session records them."""
    options = _session_options(spec, resolve_options(spec, OPTIONS))
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder, "ort"))
        inner = _open(path, spec, feeds, options)
        session = _session(inner, spec, {}, dict)
        session.infer(session.prepare(feeds))
        events: list[dict[str, Any]] = json.loads(Path(inner.end_profiling()).read_bytes())
    return operators_by_provider(events)


def operators_by_provider(events: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the operators of a profile by provider. An operator that a loop repeats counts once."""
    run = [(one["name"], one["args"]) for one in events if one["cat"] == "Node" and "provider" in one["args"]]
    distinct = {(args["provider"], args["op_name"], args["node_index"], name) for name, args in run}
    return count_operators((provider, kind) for provider, kind, *_ in sorted(distinct))


def timeline(path: Path, spec: Spec, feeds: Feeds, runs: int, out: Path) -> list[ProfileFile]:
    """Write `timeline.json`, and `executed.onnx`: the graph after optimization, to which the timeline's names refer."""
    if call_file.is_call(path, "onnxruntime"):
        written, start_ns = call_file.open_operator(path, spec).record(1 + runs, str(out))
        return _timeline(Path(written), start_ns, out)
    options = _session_options(spec, resolve_options(spec, OPTIONS))
    options.enable_profiling = True
    options.log_severity_level = 3  # otherwise it warns that the optimized file is specific to this machine
    options.profile_file_prefix = str(out / "ort_profile")
    options.optimized_model_filepath = str(out / "executed.onnx")
    inner = _open(path, spec, feeds, options)
    session = _session(inner, spec, {}, dict)
    prepared = session.prepare(feeds)
    for _ in range(1 + runs):  # the first run plans memory
        session.infer(prepared)
    start_ns = int(inner.get_profiling_start_time_ns())
    return _timeline(Path(inner.end_profiling()), start_ns, out)


def _timeline(written: Path, start_ns: int, out: Path) -> list[ProfileFile]:
    _leave_out_first_run(written, out / "timeline.json")
    written.unlink()
    return [ProfileFile("timeline.json", start_ns, "chrome_list")]


def _session(inner: Any, spec: Spec, settings: dict[str, str], places: Places) -> Session:
    if spec.device == "cpu":
        return OnnxRuntimeSession(inner, settings, places)
    return CudaSession(inner, settings, places, spec.device_number)


def _converted(path: Path, spec: Spec) -> str | bytes:
    """Return the model to run. ONNX Runtime computes as the model says, so another precision requires another model.

    f16: weights and operators from its own converter, with unchanged inputs and outputs. int8: its dynamic
        quantization,
    with int8 weights and activations quantized at run time.
    """
    if spec.precision not in CONVERTED:
        return str(path)
    onnx: Any = importlib.import_module("onnx")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "model.onnx")
        if spec.precision == "f16":
            converter: Any = importlib.import_module("onnxruntime.transformers.float16")
            onnx.save(converter.convert_float_to_float16(onnx.load(path), keep_io_types=True), target)
        else:
            logging.disable(logging.WARNING)  # it recommends preprocessing at each call
            quantization: Any = importlib.import_module("onnxruntime.quantization")
            quantization.quantize_dynamic(path, target)
        return target.read_bytes()


def _session_options(spec: Spec, options: dict[str, str]) -> Any:
    if spec.precision not in ("", "auto", "f32", *CONVERTED):
        raise TaskFailure(
            "input_error",
            msg(
                "backends.spec_onnx_runtime_cannot",
                f"spec '{spec.id}': ONNX Runtime cannot run a model in {spec.precision}",
            ),
            msg(
                "backends.convert_model_itself_submit",
                "convert the model itself and submit that, or leave the precision empty",
            ),
        )
    ort: Any = importlib.import_module("onnxruntime")
    settings = ort.SessionOptions()
    settings.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[options["optimization"]])
    inter = integer_option(spec, options, "inter_op_threads")
    if options["execution"] == "parallel":
        settings.execution_mode = ort.ExecutionMode.ORT_PARALLEL
        settings.inter_op_num_threads = inter or spec.threads
    elif inter:
        error = msg("backends.spec_inter_op_threads", f"spec '{spec.id}': inter_op_threads are of parallel execution")
        raise TaskFailure(
            "input_error", error, msg("backends.add_option_execution_parallel", "add the option execution=parallel")
        )
    settings.intra_op_num_threads = spec.threads
    return settings


def _open(path: Path, spec: Spec, feeds: Feeds, settings: Any) -> Any:
    ort: Any = importlib.import_module("onnxruntime")
    disabled = [
        name.strip() for name in resolve_options(spec, OPTIONS)["disabled_optimizers"].split(",") if name.strip()
    ]
    session = ort.InferenceSession(
        _converted(path, spec), settings, providers=_providers(ort, spec), disabled_optimizers=disabled or None
    )
    wanted = "CUDAExecutionProvider" if spec.device.startswith("cuda") else "CPUExecutionProvider"
    got: list[str] = session.get_providers()
    if got[0] != wanted:
        raise TaskFailure(
            "model_error",
            msg(
                "backends.onnx_runtime_chose_device",
                f"ONNX Runtime chose {got[0]} for device {spec.device}, not {wanted}",
            ),
        )
    session.disable_fallback()
    check_inputs(feeds, [i.name for i in session.get_inputs()])
    return session


def _providers(ort: Any, spec: Spec) -> list[Any]:
    if spec.device == "cpu":
        return ["CPUExecutionProvider"]
    available: list[str] = ort.get_available_providers()
    if not spec.device.startswith("cuda:") or "CUDAExecutionProvider" not in available:
        raise TaskFailure(
            "model_error",
            msg("backends.onnx_runtime_no_provider", f"this ONNX Runtime has no provider for device {spec.device}"),
            msg("backends.cuda_needs_onnxruntime_gpu", f"it has {', '.join(available)}; CUDA needs onnxruntime-gpu"),
        )
    options = {"device_id": spec.device_number, "use_tf32": int(spec.precision == "auto")}
    return [("CUDAExecutionProvider", options), "CPUExecutionProvider"]


def _leave_out_first_run(source: Path, target: Path) -> None:
    """Copy a profile without its first run, which takes up to 15 times as long: recording cannot start later."""
    events: list[dict[str, Any]] = json.loads(source.read_bytes())
    end = min((e["ts"] + e["dur"] for e in events if e["name"] == "model_run"), default=0)
    remaining = [e for e in events if e["ts"] >= end or not (e["cat"] == "Node" or e["name"] in RUN)]
    target.write_text("[\n" + ",\n".join(json.dumps(e, ensure_ascii=False) for e in remaining) + "\n]\n", "utf-8")


def _cuda_count() -> int:
    """Return the number of devices in the driver; ONNX Runtime does not report it."""
    count = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


BACKEND = Backend(
    name="onnxruntime",
    package="onnxruntime",
    module="onnxruntime",
    files=(ONNX, call_format("onnxruntime")),
    devices=devices,
    load=load,
    passes={"timeline": timeline},
    precisions=("auto", "f32", "f16", "int8"),
    options=OPTIONS,
    requires=("numpy", "onnx"),  # its converters require both
    short="ort",
)
