"""Engines of cases that run on the backends for model measurements."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.backends import Feeds, Session, backend
from visualprof.remote.cases import Engine, InferModel
from visualprof.remote.protocol import Precision, Spec, TaskFailure

# Frameworks that export files of other suffixes than ONNX.
FRAMEWORKS_BY_SUFFIX = {".mge": ("megengine",), ".tflite": ("tensorflow",)}
MakeEngine = Callable[[Any, str, Any], InferModel]


class BackendModel:
    """A session of a backend as FlagPerf's class InferModel: lists of tensors in and out.

    Args:
        session: The loaded model.
        feeds: The inputs at loading, in order; {} accepts any number of inputs.
        compiles: Whether the runtime compiles for each size. The first run of a new size does not count as inference.
    """

    def __init__(self, session: Session, feeds: Feeds, compiles: bool) -> None:
        self._session, self._names, self._compiles = session, list(feeds), compiles
        self._sizes = {tuple(values.shape for values in feeds.values())}

    def __call__(self, inputs: list[Any], /) -> tuple[list[Any], float]:
        """Run one batch of PyTorch tensors or arrays. The outputs have the same type."""
        np: Any = importlib.import_module("numpy")
        tensors = any(hasattr(value, "detach") for value in inputs)
        arrays = [np.ascontiguousarray(value.detach().cpu().numpy() if tensors else value) for value in inputs]
        names = self._names or [str(i) for i in range(len(arrays))]
        feeds: Feeds = dict(zip(names, arrays, strict=True))
        compiled_s = self._compile(feeds) if self._compiles else 0.0
        outputs = self._session.fetch(self._session.infer(self._session.prepare(feeds)))
        if tensors:
            torch: Any = importlib.import_module("torch")
            outputs = [torch.from_numpy(value) for value in outputs]
        return outputs, compiled_s

    def _compile(self, feeds: Feeds) -> float:
        """Run new sizes once and return the seconds; 0 for sizes that have run."""
        sizes = tuple(values.shape for values in feeds.values())
        if sizes in self._sizes:
            return 0.0
        self._sizes.add(sizes)
        start = time.perf_counter()
        self._session.infer(self._session.prepare(feeds))
        return time.perf_counter() - start

    def effective(self) -> dict[str, str]:
        """Return the settings that really run: precision, threads, providers, ..."""
        return self._session.effective()


def backend_engine(
    name: str, device: str, requires: tuple[str, ...], suffix: str = ".onnx", compiles: bool = False
) -> Engine:
    """Return an engine that loads the exported file with a backend.

    Args:
        name: Name of the backend.
        device: Device of the run configuration: "cpu" or "cuda:0".
        requires: Required packages.
        suffix: Suffix of the files that it reads; `export_model` writes one.
        compiles: As in `BackendModel`.
    """

    def make(config: Any, onnx_path: str, model: Any) -> InferModel:
        path = Path(onnx_path)
        if path.suffix != suffix:
            error = msg(
                "cases.reads_files_case_exported",
                f"{name} reads {suffix} files, and the case has exported {path.name or 'nothing'}",
            )
            raise TaskFailure(
                "model_error",
                error,
                msg(
                    "cases.export_model_write_file", f"have export_model write a {suffix} file, or use another compiler"
                ),
            )
        feeds = {".onnx": _onnx_feeds, ".mge": _megengine_feeds, ".tflite": _litert_feeds}[suffix](path, config)
        session = backend(name).load(path, engine_spec(config, name, device), feeds)
        return BackendModel(session, feeds, compiles)

    return Engine(make, requires, backend=name, frameworks=FRAMEWORKS_BY_SUFFIX.get(suffix, ()))


def torch_engine(device: str, compiled: bool) -> Engine:
    """Return an engine that runs the case's PyTorch model itself, eagerly or with torch.compile, without an export."""

    def make(config: Any, onnx_path: str, model: Any) -> InferModel:
        if model is None:
            raise TaskFailure(
                "model_error",
                msg(
                    "cases.compiler_runs_cases_model",
                    "this compiler runs the case's model, and create_model returned none",
                ),
            )
        torch_backend: Any = importlib.import_module("visualprof.remote.backends.torch")
        mode = "compile" if compiled else "eager"
        spec = engine_spec(config, "torch", device, {"mode": mode})
        return BackendModel(torch_backend.from_module(model, spec), {}, compiled)

    return Engine(make, ("torch>=2.1",), onnx=False, backend="torch")


def engine_spec(config: Any, name: str, device: str, options: dict[str, str] | None = None) -> Spec:
    """Return the run configuration of a case configuration.

    `fp16` becomes precision f16. The configuration may have `threads` and the options of the backend.
    """
    precision: Precision = "f16" if config.fp16 else ""
    configured = {option: getattr(config, option, None) for option in backend(name).options}
    chosen = {option: str(value) for option, value in configured.items() if value is not None} | (options or {})
    threads: int = getattr(config, "threads", 0)
    return Spec(config.case, name, device=device, precision=precision, threads=threads, options=chosen)


def _sized(dims: list[Any], config: Any) -> tuple[int, ...]:
    """Return the sizes of an input: an open first dimension is the batch size, other open dimensions are 1."""
    return tuple(d if isinstance(d, int) and d > 0 else (1 if i else config.batch_size) for i, d in enumerate(dims))


def _onnx_feeds(path: Path, config: Any) -> Feeds:
    np: Any = importlib.import_module("numpy")
    onnx: Any = importlib.import_module("onnx")
    graph = onnx.load(path, load_external_data=False).graph
    weights = {value.name for value in graph.initializer}
    feeds: Feeds = {}
    for value in graph.input:
        if value.name not in weights:
            tensor = value.type.tensor_type
            dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
            feeds[value.name] = np.zeros(_sized(dims, config), onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return feeds


def _megengine_feeds(path: Path, config: Any) -> Feeds:
    np: Any = importlib.import_module("numpy")
    graphs: Any = importlib.import_module("megengine.core.tensor.megbrain_graph")
    tools: Any = importlib.import_module("megengine.utils.comp_graph_tools")
    with path.open("rb") as file:
        outputs = graphs.load_graph(file).output_vars_list
    return {var.name: np.zeros(var.shape, var.dtype) for var in tools.get_dep_vars(outputs, "Host2DeviceCopy")}


def _litert_feeds(path: Path, config: Any) -> Feeds:
    np: Any = importlib.import_module("numpy")
    litert: Any = importlib.import_module("visualprof.remote.backends.litert")
    inputs = litert.LiteRtSession(path, Spec(config.case, "litert")).inputs
    return {
        name: np.zeros(_sized(list(details["shape_signature"]), config), details["dtype"])
        for name, details in inputs.items()
    }
