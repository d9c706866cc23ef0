"""TensorFlow: SavedModel and frozen GraphDef (`.pb`), on CPU and CUDA, with its executor or XLA."""

from __future__ import annotations

import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote.backends import (
    Backend,
    Feeds,
    FileFormat,
    ProfileFile,
    Session,
    check_inputs,
    integer_option,
    resolve_options,
)
from visualprof.remote.protocol import Spec, TaskFailure

OPTIONS: dict[str, tuple[str, ...]] = {"compile": ("none", "xla"), "inter_op_threads": ()}
SAVED_MODEL_START = b"\x08"  # the first byte of a SavedModel: its version
SOURCES = ("Placeholder", "PlaceholderV2", "PlaceholderWithDefault")
WARM_UP = 3
SILENT = (*SOURCES, "Const", "NoOp")


class TensorFlowSession(Session):
    """A function of a model. Only the requested CUDA device is visible, as the first one."""

    def __init__(self, tf: Any, function: Callable[..., Any], spec: Spec, settings: dict[str, str]) -> None:
        self._tf, self._function, self._settings = tf, function, settings
        self._cuda = spec.device != "cpu"

    def prepare(self, feeds: Feeds) -> Any:
        """Return tensors on the device, and reset the device's peak memory."""
        if self._cuda:
            self._tf.config.experimental.reset_memory_stats("GPU:0")
        with self._tf.device("GPU:0" if self._cuda else "CPU:0"):
            return {name: self._tf.identity(values) for name, values in feeds.items()}

    def infer(self, prepared: Any) -> Any:
        """Run once and wait for the device."""
        outputs = self._function(**prepared)
        if self._cuda:
            self._tf.test.experimental.sync_devices()
        return outputs

    def fetch(self, outputs: Any) -> list[Any]:
        """Return outputs as arrays, sorted by name; bfloat16 as float32, because numpy has no bfloat16."""
        tensors: list[Any] = self._tf.nest.flatten(outputs)
        bfloat16 = self._tf.bfloat16
        return [(self._tf.cast(t, "float32") if t.dtype == bfloat16 else t).numpy() for t in tensors]

    def effective(self) -> dict[str, str]:
        """Return precision, device, threads and options."""
        return self._settings

    def memory_bytes(self) -> int | None:
        """Return the allocator's peak on CUDA since the last `prepare`."""
        return int(self._tf.config.experimental.get_memory_info("GPU:0")["peak"]) if self._cuda else None


def devices() -> list[str]:
    """Return the CPU and each CUDA device."""
    tf: Any = importlib.import_module("tensorflow")
    return ["cpu", *(f"cuda:{i}" for i in range(len(tf.config.list_physical_devices("GPU"))))]


def load(path: Path, spec: Spec, feeds: Feeds) -> Session:
    """Read the model. XLA compiles it when a size first occurs."""
    options = resolve_options(spec, OPTIONS)
    tf: Any = importlib.import_module("tensorflow")
    _choose_device(tf, spec)
    tf.config.threading.set_intra_op_parallelism_threads(spec.threads)
    tf.config.threading.set_inter_op_parallelism_threads(integer_option(spec, options, "inter_op_threads"))
    form, names, function = _read(tf, path)
    check_inputs(feeds, names)
    if options["compile"] == "xla":
        function = tf.function(function, jit_compile=True)
    own = (
        msg("backends.model_tf32_allowed", "as the model, tf32 allowed")
        if spec.precision == "auto" and spec.device != "cpu"
        else msg("backends.model", "as the model")
    )
    settings = {"form": form, "precision": own, "device": spec.device, **{n: v for n, v in options.items() if v}}
    return TensorFlowSession(
        tf,
        function,
        spec,
        {**settings, "threads": str(spec.threads or msg("backends.runtime_chooses", "as the runtime chooses"))},
    )


def _choose_device(tf: Any, spec: Spec) -> None:
    """Show only the requested device to TensorFlow, because operators without a device go to the first one."""
    gpus: list[Any] = tf.config.list_physical_devices("GPU")
    visible = gpus[spec.device_number : spec.device_number + 1] if spec.device != "cpu" else []
    if spec.device != "cpu" and not visible:
        error = msg("backends.tensorflow_sees_no_device", f"this TensorFlow sees no device {spec.device}")
        raise TaskFailure(
            "model_error",
            error,
            msg(
                "backends.cuda_needs_tensorflow_cuda", f"it has {', '.join(devices())}; CUDA needs tensorflow[and-cuda]"
            ),
        )
    tf.config.set_visible_devices(visible, "GPU")
    for gpu in visible:
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.experimental.enable_tensor_float_32_execution(spec.precision == "auto")  # on by default


def _read(tf: Any, path: Path) -> tuple[str, list[str], Callable[..., Any]]:
    """Return the form of a file, the names of its inputs, and its function, which takes them as keywords."""
    if path.read_bytes()[:1] == SAVED_MODEL_START:
        return _saved(tf, path)
    graph = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    read = {name.removeprefix("^").partition(":")[0] for node in graph.node for name in node.input}
    sources = [node.name for node in graph.node if node.op in SOURCES and node.name in read]
    ends = [node.name for node in graph.node if node.name not in read and node.op not in SILENT]
    whole = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
    tensors = [whole.graph.get_tensor_by_name(f"{name}:0") for name in sources]
    function = whole.prune(tensors, [whole.graph.get_tensor_by_name(f"{name}:0") for name in ends])

    def call(**given: Any) -> Any:
        return function(*(given[name] for name in sources))

    return msg("backends.frozen_graph", "frozen graph"), sources, call


@contextmanager
def saved_model_folder(path: Path) -> Generator[str]:
    """Yield a folder in which a SavedModel has the name that TensorFlow expects, next to its other files."""
    with tempfile.TemporaryDirectory() as folder:
        for part in path.parent.iterdir():
            os.symlink(part.absolute(), Path(folder, "saved_model.pb" if part == path else part.name))
        yield folder


def signature_name(loaded: Any) -> str:
    """Return the signature of a SavedModel that is run.

    Raises:
        TaskFailure: There is no signature.
    """
    names = sorted(loaded.signatures)
    if not names:
        error = msg("backends.savedmodel_no_signature", "this SavedModel has no signature")
        raise TaskFailure(
            "model_error",
            error,
            msg("backends.save_signatures_model_export", "save it with signatures=..., or model.export of Keras"),
        )
    return "serving_default" if "serving_default" in names else names[0]


def _saved(tf: Any, path: Path) -> tuple[str, list[str], Callable[..., Any]]:
    with saved_model_folder(path) as folder:
        loaded = tf.saved_model.load(folder)
    name = signature_name(loaded)
    function = loaded.signatures[name]
    function.model = loaded  # keeps its variables alive
    wanted: list[str] = list(function.structured_input_signature[1])
    return f"SavedModel, {name}", wanted, function


def timeline(path: Path, spec: Spec, feeds: Feeds, runs: int, out: Path) -> list[ProfileFile]:
    """Write `timeline.xplane.pb` with TensorFlow's profiler: each run is a step with its operators."""
    tf: Any = importlib.import_module("tensorflow")
    session = load(path, spec, feeds)
    prepared = session.prepare(feeds)
    for _ in range(WARM_UP):
        session.infer(prepared)
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        for run in range(runs):
            with tf.profiler.experimental.Trace("run", step_num=run, _r=1):
                session.infer(prepared)
        tf.profiler.experimental.stop()
        (file,) = Path(folder).rglob("*.xplane.pb")
        shutil.copyfile(file, out / "timeline.xplane.pb")
    return [ProfileFile("timeline.xplane.pb")]


MODEL = FileFormat(
    "tensorflow",
    "SavedModel",
    (".pb",),
    leading_batch=True,
    runs_code=True,  # operators read and write files
    sweep_hint=msg(
        "backends.save_open_first_dimension",
        "save it with an open first dimension to sweep it: tf.TensorSpec([None, ...])",
    ),
)
BACKEND = Backend(
    name="tensorflow",
    package="tensorflow-cpu",
    module="tensorflow",
    files=(MODEL,),
    devices=devices,
    load=load,
    passes={"timeline": timeline},
    precisions=("auto", "f32"),
    options=OPTIONS,
    short="tf",
)
