"""OpenVINO: .onnx and its own .xml, on the devices of its plugins."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
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
    count_operators,
    integer_option,
    resolve_options,
)
from visualprof.remote.protocol import Spec, TaskFailure

# Performance hints; none: one stream, for one run after another.
HINTS = {
    "none": "",
    "latency": "LATENCY",
    "throughput": "THROUGHPUT",
    "cumulative": "CUMULATIVE_THROUGHPUT",
}
OPTIONS: dict[str, tuple[str, ...]] = {"hint": tuple(HINTS), "streams": ()}
PRECISIONS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
TOLD = {"layerType", "primitiveType", "runtimePrecision"}
PASSIVE = ("Const", "Input", "Output", "Reshape")  # operators that compute nothing
REFERENCE = " (reference)"  # plain loops, without an implementation for the processor
WARM_UP = 3  # layers are prepared when a shape first occurs
COLUMNS = (
    "layerType",
    "originalLayersNames",
    "primitiveType",
    "execOrder",
    "execTimeMcs",
    "runtimePrecision",
    "outputLayouts",
    "outputPrecisions",
)


class OpenVinoSession(Session):
    """A compiled model with one infer request, run synchronously."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._tensor: Any = importlib.import_module("openvino").Tensor
        self.request = compiled.create_infer_request()

    def prepare(self, feeds: Feeds) -> Any:
        """Set the arrays as the request's inputs, without a copy."""
        for name, values in feeds.items():
            self.request.set_tensor(name, self._tensor(values, shared_memory=True))
        return feeds

    def infer(self, prepared: Any) -> Any:
        """Run once. Outputs are views of the request's memory."""
        return self.request.infer(share_outputs=True)

    def fetch(self, outputs: Any) -> list[Any]:
        """Return copies of the outputs."""
        return [values.copy() for values in outputs.values()]

    def effective(self) -> dict[str, str]:
        """Return the plugin's decisions. With "auto", it uses bfloat16 where the CPU is fast with it."""
        settings = {
            "precision": _precision(self._compiled),
            "threads": _property(self._compiled, "INFERENCE_NUM_THREADS"),
            "streams": _property(self._compiled, "NUM_STREAMS"),
            "hint": _property(self._compiled, "PERFORMANCE_HINT").rpartition(".")[2],
            "device": _property(self._compiled, "EXECUTION_DEVICES"),
            "shapes": "dynamic" if any(i.partial_shape.is_dynamic for i in self._compiled.inputs) else "static",
        }
        return {name: value for name, value in settings.items() if value}

    def operator_placement(self) -> dict[str, dict[str, int]]:
        """Return executed layers by device and precision; layers without an optimized implementation are separate."""
        device = _property(self._compiled, "EXECUTION_DEVICES")
        layers = [_layer(operator) for operator in self._compiled.get_runtime_model().get_ops()]
        active = [one for one in layers if one.keys() >= TOLD and one["layerType"] not in PASSIVE]
        apart = [REFERENCE if one["primitiveType"].startswith("ref_") else "" for one in active]
        return count_operators(
            (f"{device} {one['runtimePrecision']}{more}", one["layerType"])
            for one, more in zip(active, apart, strict=True)
        )

    def concurrent_sessions(self, count: int) -> Sequence[Session]:
        """Return one request per session, run by the plugin's streams."""
        return [ConcurrentOpenVinoSession(self._compiled) for _ in range(count)]

    def best_concurrency(self) -> int:
        """Return the number of requests that the plugin recommends."""
        return int(_property(self._compiled, "OPTIMAL_NUMBER_OF_INFER_REQUESTS") or 1)


class ConcurrentOpenVinoSession(OpenVinoSession):
    """A request that is started asynchronously, so that the plugin's streams share all requests."""

    def infer(self, prepared: Any) -> Any:
        """Run once."""
        self.request.start_async(share_inputs=True)
        self.request.wait()
        return self.request

    def fetch(self, outputs: Any) -> list[Any]:
        """Return copies of the outputs."""
        return [tensor.data.copy() for tensor in outputs.output_tensors]


def devices() -> list[str]:
    """Return the CPU, and each Intel GPU."""
    ov: Any = importlib.import_module("openvino")
    names: list[str] = ov.Core().available_devices
    gpus = [name for name in names if name.partition(".")[0] == "GPU"]
    return ["cpu", *(f"gpu:{name.partition('.')[2] or 0}" for name in gpus)]


def load(path: Path, spec: Spec, feeds: Feeds) -> Session:
    """Read and compile the model; named dimensions stay open."""
    return OpenVinoSession(_compile(path, spec, feeds))


def layers(path: Path, spec: Spec, feeds: Feeds, runs: int, out: Path) -> list[ProfileFile]:
    """Write `profile.json`: the time of each layer in each run, and the executed graph."""
    ov: Any = importlib.import_module("openvino")
    compiled = _compile(path, spec, feeds, PERF_COUNT=True)
    session = OpenVinoSession(compiled)
    prepared = session.prepare(feeds)
    for _ in range(WARM_UP):
        session.infer(prepared)
    rows: list[list[dict[str, Any]]] = []
    for _ in range(runs):
        session.infer(prepared)
        rows.append([_row(info) for info in session.request.profiling_info])
    sizes = [values.shape[0] for values in feeds.values() if values.shape]
    document = {
        "openvino": ov.get_version(),
        "model": path.name,
        "batch": sizes[0] if sizes else 1,
        "device": _device(spec.device),
        "profiling_info": rows,
        "runtime_graph": [_layer(operator) for operator in compiled.get_runtime_model().get_ops()],
    }
    (out / "profile.json").write_text(json.dumps(document), "utf-8")
    return [ProfileFile("profile.json")]


def _compile(path: Path, spec: Spec, feeds: Feeds, **properties: Any) -> Any:
    options = resolve_options(spec, OPTIONS)
    ov: Any = importlib.import_module("openvino")
    core = ov.Core()
    device = _device(spec.device)
    if device.partition(".")[0] not in {name.partition(".")[0] for name in core.available_devices}:
        raise TaskFailure(
            "model_error",
            msg("backends.openvino_no_plugin_device", f"this OpenVINO has no plugin for device {spec.device}"),
            msg("backends.it_has", f"it has {', '.join(core.available_devices)}"),
        )
    model = core.read_model(path, _weights(path))
    check_inputs(feeds, [_name(i, feeds) for i in model.inputs])
    streams = integer_option(spec, options, "streams")
    if hint := HINTS[options["hint"]]:
        properties["PERFORMANCE_HINT"] = hint
    if streams or not hint:
        properties["NUM_STREAMS"] = streams or 1
    if spec.precision != "auto":
        properties["INFERENCE_PRECISION_HINT"] = spec.precision or "f32"
    if spec.threads and device == "CPU":
        properties["INFERENCE_NUM_THREADS"] = spec.threads
    compiled = core.compile_model(model, device, properties)
    if spec.precision not in ("", "auto", _precision(compiled)):
        raise TaskFailure(
            "model_error",
            msg(
                "backends.spec_openvino_runs_model",
                f"spec '{spec.id}': OpenVINO runs this model in {_precision(compiled)} here, not in {spec.precision}",
            ),
            msg(
                "backends.device_cannot_run_precision",
                "this device cannot run that precision; leave it to the runtime, or choose another",
            ),
        )
    return compiled


def _weights(path: Path) -> Path | None:
    """Return the .bin of an .xml that has another name; `None` if OpenVINO finds it itself."""
    by_name = path.suffix.lower() != ".xml" or path.with_suffix(".bin").exists()
    return None if by_name else next(path.parent.glob("*.bin"), None)


def _device(name: str) -> str:
    """Convert `cpu` to `CPU` and `gpu:1` to `GPU.1`."""
    return name.upper().replace(":", ".")


def _name(model_input: Any, feeds: Feeds) -> str:
    """Return the name of an input that the job uses; an input may have several names."""
    names: set[str] = model_input.get_names()
    return next((name for name in feeds if name in names), min(names, default="?"))


def _precision(compiled: Any) -> str:
    precision = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    return PRECISIONS.get(
        precision, msg("backends.model", "as the model") if precision in ("dynamic", "undefined") else precision
    )


def _property(compiled: Any, name: str) -> str:
    """Return a property as text, "" if the plugin does not have it."""
    try:
        value = compiled.get_property(name)
    except RuntimeError:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)  # pyright: ignore[reportUnknownArgumentType]


def _row(info: Any) -> dict[str, Any]:
    names = {name: getattr(info, name) for name in ("node_name", "node_type", "exec_type")}
    times = {f"{name}_us": round(getattr(info, name).total_seconds() * 1e6) for name in ("real_time", "cpu_time")}
    return {**names, "status": str(info.status).rpartition(".")[2], **times}


def _layer(operator: Any) -> dict[str, str]:
    info = operator.get_rt_info()
    columns = {name: info[name].astype(str) for name in COLUMNS if name in info}
    return {"name": operator.get_friendly_name(), **columns}


IR = FileFormat(
    "openvino", msg("backends.openvino_ir", "OpenVINO IR"), (".xml",)
)  # its weights are a part of the model: NAME.bin
BACKEND = Backend(
    name="openvino",
    package="openvino",
    module="openvino",
    files=(ONNX, IR),
    devices=devices,
    load=load,
    passes={"layers": layers},
    precisions=("auto", "f32", "f16", "bf16"),
    options=OPTIONS,
    short="ov",
)
