"""MegEngine: dumped graphs (.mge) on CPU and CUDA, which only the package `megengine.core` can run.

A TracedModule (.tm) is dumped first.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from visualprof.messages import msg
from visualprof.remote import traced_module
from visualprof.remote.backends import (
    Backend,
    Feeds,
    FileFormat,
    OperatorSession,
    ProfileFile,
    Session,
    call_format,
    check_inputs,
    resolve_options,
)
from visualprof.remote.operators import call_file
from visualprof.remote.protocol import Spec, TaskFailure

LAYOUTS = ("nchw4", "nchw88", "nchw44", "nchw44_dot", "nchw32", "nchw64", "chwn4", "hwcd4")
FUSIONS = ("fuse_conv_bias_nonlinearity", "fuse_conv_bias_with_z", "fuse_preprocess")
# How algorithms are chosen: by rule, or by trying each; "reproducible": only those with bitwise equal results.
STRATEGIES = {"0": ("HEURISTIC",), "1": ("PROFILE",), "reproducible": ("PROFILE", "REPRODUCIBLE")}
OPTIONS = {
    "fast_run": tuple(STRATEGIES),
    "optimize": ("none", "inference", *FUSIONS, "io16xc32", "ioc16", *LAYOUTS),
}
PRECISIONS = {"io16xc32": "f16, computed in f32", "ioc16": "f16"}
WARM_UP = 5
BANNER = re.compile(rb"info: \+|debug: failed to load cuda func")

Build = tuple[Any, dict[str, Any], dict[str, Any], Any]  # graph, inputs and outputs by name, the profiler


class MegEngineSession(Session):
    """A compiled graph. In each run its inputs must be set and its outputs taken; otherwise it blocks forever."""

    def __init__(self, graph: Any, inputs: dict[str, Any], outputs: dict[str, Any], spec: Spec) -> None:
        self._mge: Any = importlib.import_module("megengine")
        self._graph, self._inputs, self._outputs = graph, inputs, list(outputs.values())
        self._spec = spec

    def prepare(self, feeds: Feeds) -> Any:
        """Return each input with its values on the device, and reset the device's peak memory."""
        if self._spec.device != "cpu":
            self._mge.reset_max_memory_stats("gpu0")
        return [(self._inputs[name], self._mge.Tensor(values)._dev_tensor()) for name, values in feeds.items()]  # noqa: SLF001

    def infer(self, prepared: Any) -> Any:
        """Run once and wait for the device."""
        for place, values in prepared:
            place.set_value(values)
        self._graph.execute()
        self._graph.wait()
        return [output.get_value() for output in self._outputs]

    def fetch(self, outputs: Any) -> list[Any]:
        """Return outputs as arrays."""
        return [values.numpy() for values in outputs]

    def effective(self) -> dict[str, str]:
        """Return options, device and threads."""
        options, device = resolve_options(self._spec, OPTIONS), self._spec.device
        threads = {"threads": "1"} if device == "cpu" else {}
        return {
            "precision": PRECISIONS.get(options["optimize"], msg("backends.model", "as the model")),
            "device": device,
            **threads,
            **options,
        }

    def memory_bytes(self) -> int | None:
        """Return the allocator's peak on CUDA since the last `prepare`."""
        return int(self._mge.get_max_allocated_memory("gpu0")) if self._spec.device != "cpu" else None


def devices() -> list[str]:
    """Return the CPU and each CUDA device."""
    mge: Any = importlib.import_module("megengine")
    with _without_banner():
        count = int(mge.get_device_count("gpu")) if mge.is_cuda_available() else 0
    return ["cpu", *(f"cuda:{i}" for i in range(count))]


def load(path: Path, spec: Spec, feeds: Feeds) -> Session:
    """Read and compile a graph. Sizes of its inputs may differ from those in the file."""
    if call_file.is_call(path, "megengine"):
        return OperatorSession(path, spec)
    return MegEngineSession(*_build(path, spec, feeds)[:3], spec)


def static(path: Path, spec: Spec, feeds: Feeds, runs: int, out: Path) -> list[ProfileFile]:
    """Write `profile.json`: each operator of the last run, with its memory."""
    if call_file.is_call(path, "megengine"):
        (out / "profile.json").write_text(
            json.dumps(call_file.open_operator(path, spec).static_profiles(runs)[-1]), "utf-8"
        )
        return [ProfileFile("profile.json")]
    profiler: Any = importlib.import_module("megengine.utils.comp_graph_tools").GraphProfiler
    graph, inputs, outputs, plugin = _build(path, spec, feeds, profiler)
    session = MegEngineSession(graph, inputs, outputs, spec)
    prepared = session.prepare(feeds)
    for _ in range(WARM_UP + runs):
        session.infer(prepared)
    (out / "profile.json").write_text(plugin.get(), "utf-8")
    return [ProfileFile("profile.json")]


def timeline(path: Path, spec: Spec, feeds: Feeds, runs: int, out: Path) -> list[ProfileFile]:
    """Write `timeline.json`: each run is a step with its operators on host and device.

    Only one format per profiler, because a second one crashes it, and no `Profiler.step()`, which crashes at random.
    """
    if call_file.is_call(path, "megengine"):
        operator = call_file.open_operator(path, spec)
        run = operator.prepare_call()

        def once() -> None:
            run()
            operator.synchronize()

        return _recorded(once, runs, out)
    plugin: Any = importlib.import_module("megengine.core._imperative_rt.graph").GraphProfiler2
    graph, inputs, outputs, _kept = _build(path, spec, feeds, plugin)
    session = MegEngineSession(graph, inputs, outputs, spec)
    prepared = session.prepare(feeds)
    return _recorded(lambda: session.infer(prepared), runs, out)


def _recorded(run: Callable[[], Any], runs: int, out: Path) -> list[ProfileFile]:
    """Write the timeline of some runs."""
    tools: Any = importlib.import_module("megengine.utils.profiler")
    for _ in range(WARM_UP):
        run()
    folder = Path(tempfile.mkdtemp(dir=out, prefix="timeline."))
    profiler = tools.Profiler(str(folder), format="chrome_timeline.json")
    profiler.start()
    for _ in range(runs):
        with tools.scope("step"):
            run()
    profiler.stop()
    profiler.dump()
    start_ns = _without_warm_up(next(folder.glob("*.chrome_timeline.json")), out / "timeline.json")
    shutil.rmtree(folder)
    return [ProfileFile("timeline.json", start_ns, "chrome_object")]


def _without_warm_up(source: Path, target: Path) -> int:
    """Copy a timeline without events before its start, which the graph's profiler also records. Return its epoch."""
    document: dict[str, Any] = json.loads(source.read_bytes())
    document["traceEvents"] = [e for e in document["traceEvents"] if e.get("ts", 0) >= 0]
    target.write_text(json.dumps(document, ensure_ascii=False), "utf-8")
    return int(document["metadata"]["localTime"])


def memory(path: Path, spec: Spec, feeds: Feeds, runs: int, out: Path) -> list[ProfileFile]:
    """Write `memory.json`: the lite runtime's memory plan of each tensor; MegEngine itself allocates dynamically."""
    if call_file.is_call(path, "megengine"):
        raise TaskFailure(
            "input_error",
            msg("backends.memory_one_operator_not", "the memory of one operator is not planned"),
            msg("backends.leave_out_pass_memory", "leave out the pass memory"),
        )
    lite: Any = importlib.import_module("megenginelite")
    device = lite.LiteDeviceType.LITE_CPU if spec.device == "cpu" else lite.LiteDeviceType.LITE_CUDA
    with _without_banner():
        network = lite.LiteNetwork(config=lite.LiteConfig(device))
    network.device_id = spec.device_number
    network.enable_profile_performance(str(out / "memory.json"))
    network.load(str(_dumped(path, feeds)))
    check_inputs(feeds, network.get_all_input_name())
    for name, values in feeds.items():
        network.get_io_tensor(name).set_data_by_copy(values)
    for _ in range(1 + runs):
        network.forward()
        network.wait()
    return [ProfileFile("memory.json")]


def _build(path: Path, spec: Spec, feeds: Feeds, plugin: Callable[[Any], Any] | None = None) -> Build:
    """Load and compile a graph.

    Args:
        path: The model.
        spec: The run configuration.
        feeds: The inputs.
        plugin: A profiler, which must exist before the graph is compiled.
    """
    options = resolve_options(spec, OPTIONS)
    _check(spec)
    mge: Any = importlib.import_module("megengine")
    _choose_device(mge, spec)
    graphs: Any = importlib.import_module("megengine.core.tensor.megbrain_graph")
    tools: Any = importlib.import_module("megengine.utils.comp_graph_tools")
    with _dumped(path, feeds).open("rb") as file:
        loaded = graphs.load_graph(file)
    loaded.graph.options.graph_opt_level = 0
    outs: list[Any] = loaded.output_vars_list
    strategies: Any = importlib.import_module("megengine.core._imperative_rt.ops").Convolution.Strategy
    wanted = getattr(strategies, STRATEGIES[options["fast_run"]][0])
    for name in STRATEGIES[options["fast_run"]][1:]:
        wanted |= getattr(strategies, name)
    graphs.modify_opr_algo_strategy_inplace(outs, wanted)
    if options["optimize"] != "none":
        passes = {} if options["optimize"] == "inference" else {f"enable_{options['optimize']}": True}
        optimized, _ = graphs.optimize_for_inference(outs, **passes)
        outs = [getattr(out, "var", out) for out in optimized]
    sources: list[Any] = tools.get_dep_vars(outs, "Host2DeviceCopy")
    _check_inputs(sources, feeds)
    outs, inputs = tools.convert_inputs(outs, inputs=sources)
    outs, outputs = tools.convert_outputs(outs)
    profiler = plugin(loaded.graph) if plugin else None
    return loaded.graph.compile(outs), inputs, outputs, profiler


def _dumped(path: Path, feeds: Feeds) -> Path:
    """Return a TracedModule dumped for these sizes, which may run any code; other models unchanged."""
    if path.suffix.lower() not in TRACED.suffixes:
        return path
    mge: Any = importlib.import_module("megengine")
    jit: Any = importlib.import_module("megengine.jit")
    names = [tensor.name for tensor in traced_module.read_inputs(path)]
    check_inputs(feeds, names)
    module = mge.load(str(path))
    module.eval()

    def forward(*values: Any) -> Any:
        return module(*values)

    traced = jit.trace(forward, symbolic=True, capture_as_const=True)
    traced(*(mge.Tensor(feeds[name]) for name in names))
    target = Path(tempfile.mkdtemp()) / "dumped.mge"
    traced.dump(str(target), arg_names=names)
    return target


def _check(spec: Spec) -> None:
    if spec.precision not in ("", "f32"):
        error = msg(
            "backends.spec_megengine_no_setting", f"spec '{spec.id}': MegEngine has no setting for {spec.precision}"
        )
        raise TaskFailure(
            "input_error",
            error,
            msg(
                "backends.use_option_optimize_io16xc32",
                "use the option optimize=io16xc32 or ioc16, or convert the model",
            ),
        )
    if spec.threads > 1:
        error = msg(
            "backends.spec_megengine_runs_mge",
            f"spec '{spec.id}': MegEngine runs an .mge on one thread, not on {spec.threads}",
        )
        raise TaskFailure(
            "input_error", error, msg("backends.leave_threads_runtime", "leave the threads to the runtime")
        )


def _check_inputs(sources: list[Any], feeds: Feeds) -> None:
    """Check names, dtypes and ranks. A wrong dtype would otherwise fail deep inside an operator."""
    check_inputs(feeds, [source.name for source in sources])
    for source in sources:
        values, dtype, rank = feeds[source.name], source.dtype, len(source.shape)
        if values.dtype != dtype or values.ndim != rank:
            expected = msg(
                "backends.dimensions", f"{dtype.__name__ if isinstance(dtype, type) else dtype} with {rank} dimensions"
            )
            error = msg(
                "backends.input_model_wants_not_2",
                f"input '{source.name}': the model wants {expected}, not {values.dtype}{list(values.shape)}",
            )
            raise TaskFailure("input_error", error)


def _choose_device(mge: Any, spec: Spec) -> None:
    """Show only the requested device to CUDA, because a loaded graph uses the first visible device."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "" if spec.device == "cpu" else str(spec.device_number)
    with _without_banner():
        cuda = bool(mge.is_cuda_available())
        mge.Tensor([0.0]).numpy()
    if cuda != (spec.device != "cpu"):
        actual = msg("backends.uses_cuda", "uses CUDA") if cuda else msg("backends.sees_no_device", "sees no device")
        raise TaskFailure("model_error", msg("backends.megengine_not", f"this MegEngine {actual}, not {spec.device}"))


@contextmanager
def _without_banner() -> Generator[None]:
    """Hide MegEngine's lines about a missing CUDA from stderr. Other lines are passed on afterwards."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        real = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(real, 2)
            os.close(real)
            file.seek(0)
            os.write(2, b"".join(line for line in file if not BANNER.match(line)))


TRACED = FileFormat(
    "megengine_traced",
    msg("backends.megengine_tm", "MegEngine .tm"),
    (".tm",),
    free_batch=True,
    runs_code=True,
    sniff=traced_module.is_traced_module,
    inputs=traced_module.read_inputs,
)
BACKEND = Backend(
    name="megengine",
    package="megengine",
    module="megengine",
    files=(
        FileFormat("megengine", msg("backends.megengine_mge", "MegEngine .mge"), (".mge",), free_batch=True),
        TRACED,
        call_format("megengine"),
    ),
    devices=devices,
    load=load,
    passes={"static": static, "timeline": timeline, "memory": memory},
    precisions=("f32",),
    options=OPTIONS,
    requires=(
        "numpy<2",  # it was built before numpy 2 and cannot import it
        "onnx",  # for the converter mge_onnx: otherwise it would need a second runtime of 2 GB
    ),
    python="3.10",
    short="mge",
    concurrent_sessions=False,  # a graph has one buffer per input
)
