"""Static profiles of MegEngine: of a traced function, or of a graph in a file."""

from __future__ import annotations

import importlib
import json
import os
import re
from pathlib import Path
from typing import Any

from visualprof.capture import files, session
from visualprof.capture.files import RecordingStore
from visualprof.capture.graph import arguments_of
from visualprof.capture.options import CaptureBusy, CaptureError

KIND = "profile.json"
RUNS = 6  # those of a graph in a file; the last one counts


def profile_static(
    source: Any, inputs: Any, logdir: str | os.PathLike[str], name: str | None = None, run: str = ""
) -> Path:
    """Run a compiled graph of MegEngine and writes how long each operator took in the last run.

    Args:
        source: a function of `megengine.jit.trace(symbolic=True, profiling=True)`, or the path of an `.mge` file.
        inputs: of the function, as `add_graph` takes them; of a file a dict by name.
        logdir: the folder that visualprof watches.
        name: of the recording; that of the function or file by default.
        run: the folder below `logdir`; by default one for each job.

    Returns:
        The file, `<logdir>/<run>/<name>.step0.profile.json.gz`.

    Raises:
        CaptureBusy: a recording of this process is not over.
        CaptureError: the function is not traced with profiling, the inputs do not fit, or nothing can be written.
    """
    if session.state() is not session.State.IDLE:
        raise CaptureBusy(f"a recording of this process is {session.state().value} already", "end it first")
    mge: Any = importlib.import_module("megengine")
    file: Path | None = Path(source) if isinstance(source, (str, os.PathLike)) else None  # pyright: ignore[reportUnknownArgumentType]
    title = name or (file.stem if file else _called(source))
    worker = files.worker_of({})
    shelf = RecordingStore(Path(logdir) / (run or files.run_name(logdir, worker)), worker, 0)
    text = _of_file(mge, file, inputs) if file else _of_function(source, inputs)
    path = shelf.folder / f"{re.sub(r'[^0-9A-Za-z_-]+', '_', title)}.step0.{KIND}.gz"
    facts = {"framework": "megengine", "version": str(mge.__version__), "host": worker.host, "rank": worker.rank}
    facts |= {"world_size": worker.world_size, "pid": worker.pid}
    files.write(path, lambda raw: raw.write_text(text, "utf-8"), facts, None)
    return path


def _of_function(traced: Any, inputs: Any) -> str:
    """Return the profile of a traced function. The first call traces; the profile exists after the second call."""
    arguments, keywords = arguments_of(inputs)
    for _ in range(2):
        traced(*arguments, **keywords)
    try:
        return json.dumps(traced.get_profile())
    except (AttributeError, TypeError):  # "the JSON object must be str ..., not NoneType"
        raise CaptureError(
            f"{_called(traced)} has no profile",
            "trace it with megengine.jit.trace(symbolic=True, profiling=True)",
        ) from None


def _called(traced: Any) -> str:
    return getattr(getattr(traced, "__wrapped__", traced), "__name__", "traced")


def _of_file(mge: Any, path: Path, inputs: dict[str, Any]) -> str:
    """Return the profile of a graph from a file. MegEngine's GraphProfiler must exist before the graph is compiled."""
    graphs: Any = importlib.import_module("megengine.core.tensor.megbrain_graph")
    tools: Any = importlib.import_module("megengine.utils.comp_graph_tools")
    with path.open("rb") as file:
        loaded = graphs.load_graph(file)
    sources: list[Any] = tools.get_dep_vars(loaded.output_vars_list, "Host2DeviceCopy")
    if {source.name for source in sources} != set(inputs):
        raise CaptureError(f"the inputs of {path.name} are {', '.join(sorted(s.name for s in sources))}", "give these")
    outs, places = tools.convert_inputs(loaded.output_vars_list, inputs=sources)
    outs, results = tools.convert_outputs(outs)
    profiler = tools.GraphProfiler(loaded.graph)
    compiled = loaded.graph.compile(outs)
    for _ in range(RUNS):
        for name, place in places.items():
            place.set_value(mge.Tensor(inputs[name])._dev_tensor())  # noqa: SLF001
        compiled.execute()
        compiled.wait()
        for result in results.values():
            result.get_value()
    return profiler.get()
