"""Recorder for OpenVINO: the performance counters of each run, for models compiled with counters."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visualprof.capture.options import CaptureError, Options
from visualprof.capture.recorders import Recorder as Shape
from visualprof.capture.topics import Topics

COUNTERS = "PERF_COUNT"
COLUMNS = ("execOrder", "layerType", "originalLayersNames", "runtimePrecision", "primitiveType", "execTimeMcs")
_OPENVINO: Any = importlib.import_module("openvino")


class Recorder(Shape):
    """Recorder of runs by `infer`, a call of the model, or `start_async` with `wait`; each run is a step of the file.

    Models that are compiled while a recording is armed get counters. Without counters OpenVINO returns zeros, not an
    error.
    """

    kind = "profile.json"
    can = Topics.OPERATOR
    can_stack = False
    most_steps = 0

    def __init__(self, options: Options) -> None:
        if isinstance(options.model, _OPENVINO.CompiledModel) and not _counts(options.model):
            raise CaptureError(
                "the model was compiled without performance counters",
                f'compile it with {{"{COUNTERS}": True}}, inside `with profile(...)`, or name framework="openvino"',
            )
        self._named = options.show_operator_name
        self._runs: list[list[Any]] = []
        self._compiled: Any = None
        self._counts: dict[int, bool] = {}
        self._undo: list[Callable[[], None]] = []
        self._wrap(_OPENVINO.Core, "compile_model", with_counters)

    @property
    def forkable(self) -> bool:
        """Whether a child can write: the counters are in this process."""
        return True

    def start(self) -> None:
        """Start collecting the counters of each run."""
        request = _OPENVINO.InferRequest
        for name in ("infer", "wait"):
            self._wrap(request, name, self._counted)

    def mark(self, step: int) -> None:
        """Do nothing: the runs are the steps."""

    def stop(self, whole: bool) -> None:
        """Stop collecting counters."""
        self.close()

    def close(self) -> None:
        """Restore OpenVINO's methods."""
        while self._undo:
            self._undo.pop()()

    def facts(self) -> dict[str, Any]:
        """Return the version."""
        return {"framework": "openvino", "version": str(_OPENVINO.get_version())}

    def dump(self, path: Path) -> None:
        """Write the counters and the executed graph, in the form of remote runs."""
        if not self._runs:
            raise ValueError(f"no model ran that was compiled with {COUNTERS}")
        operators = self._compiled.get_runtime_model().get_ops()
        document = {
            "openvino": _OPENVINO.get_version(),
            "device": ",".join(self._compiled.get_property("EXECUTION_DEVICES")),
            "profiling_info": [[_row(info, self._named) for info in run] for run in self._runs],
            "runtime_graph": [_layer(operator) for operator in operators],
        }
        path.write_text(json.dumps(document), "utf-8")

    def _wrap(self, owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        """Replace a method of a class; an inherited method becomes inherited again afterwards."""
        defined: Any = owner.__dict__.get(name)
        setattr(owner, name, wrapper(getattr(owner, name)))
        self._undo.append(lambda: setattr(owner, name, defined) if defined else delattr(owner, name))

    def _counted(self, run: Callable[..., Any]) -> Callable[..., Any]:
        def call(request: Any, *arguments: Any, **keywords: Any) -> Any:
            result = run(request, *arguments, **keywords)
            if id(request) not in self._counts:
                self._counts[id(request)] = _counts(request.get_compiled_model())
            if self._counts[id(request)]:
                self._compiled = self._compiled or request.get_compiled_model()
                self._runs.append(request.profiling_info)
            return result

        return call


def _counts(model: Any) -> bool:
    return str(model.get_property(COUNTERS)).upper() in ("YES", "TRUE")


def with_counters(compile_model: Callable[..., Any], wanted: Callable[[], bool] = lambda: True) -> Callable[..., Any]:
    """Return `Core.compile_model` that enables counters if they are wanted at compile time."""

    def call(core: Any, model: Any, device_name: Any = None, config: Any = None, **keywords: Any) -> Any:
        counters = {COUNTERS: True} if wanted() else {}
        return compile_model(core, model, device_name, {**counters, **(config or {})}, **keywords)

    return call


def _row(info: Any, named: bool) -> dict[str, Any]:
    names = {name: getattr(info, name) for name in ("node_type", "exec_type")}
    times = {f"{name}_us": round(getattr(info, name).total_seconds() * 1e6) for name in ("real_time", "cpu_time")}
    names["node_name"] = info.node_name if named else info.node_type
    return {**names, "status": str(info.status).rpartition(".")[2], **times}


def _layer(operator: Any) -> dict[str, str]:
    info = operator.get_rt_info()
    columns = {name: info[name].astype(str) for name in COLUMNS if name in info}
    return {"name": operator.get_friendly_name(), **columns}
