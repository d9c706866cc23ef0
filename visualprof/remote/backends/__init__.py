"""One file per runtime, each with a `BACKEND`; found by listing this folder.

The files have no heavy imports at the top: server and agent read a backend's declarations without its runtime.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from visualprof.messages import msg
from visualprof.remote.operators import TITLES, file_magic
from visualprof.remote.operators.call_file import call_suffix, measure_file, read_call
from visualprof.remote.protocol import Input, Precision, Spec, TaskFailure

MAX_OPTION_VALUE = 1024  # threads or streams

Feeds = dict[str, Any]  # numpy arrays by the input's name, in the order of the request


@dataclass(frozen=True)
class ProfileFile:
    """A file that a profile pass wrote.

    Attributes:
        name: Path below the result's folder.
        start_ns: Time 0 of the file, ns since the epoch; -1 if unknown.
        counters: How the monitor's samples can be added: "chrome_list" (a list of events), "chrome_object"
            (`traceEvents`),
            "" not at all. Both have time stamps in us since start_ns.
    """

    name: str
    start_ns: int = -1
    counters: str = ""


class Session(Protocol):
    """A loaded model. A run is `fetch(infer(prepare(feeds)))`, of which only `infer` counts as latency."""

    def prepare(self, feeds: Feeds) -> Any:
        """Return the inputs on the device, as the runtime needs them."""
        return feeds

    def infer(self, prepared: Any) -> Any:
        """Run once. The device has finished when this function returns."""
        ...

    def fetch(self, outputs: Any) -> list[Any]:
        """Return the outputs as numpy arrays."""
        return list(outputs)

    def concurrent_sessions(self, count: int) -> Sequence[Session]:
        """Return sessions of the loaded model that run concurrently, each prepared, run and closed by its own thread.

        By default, all threads share this session.
        """
        return [self] * count

    def best_concurrency(self) -> int:
        """Return the number of concurrent sessions with the most runs per second, as far as the runtime knows."""
        return 1

    def effective(self) -> dict[str, str]:
        """Return the settings that really run: precision, providers, threads, ..."""
        return {}

    def operator_placement(self) -> dict[str, dict[str, int]]:
        """Return the count of each operator type by the place that runs it (provider, delegate, precision).

        {} if the runtime does not report it.
        """
        return {}

    def memory_bytes(self) -> int | None:
        """Return the device's peak memory since the last `prepare`; `None` on the host or if unknown."""
        return None

    def close(self) -> None:
        """Leave the session's modes. Memory is freed when the process ends."""
        return


@dataclass(frozen=True)
class FileFormat:
    """A format of model files, with the properties that a job needs.

    Args:
        name: Name of the format, as in `reader.models` if a reader exists.
        title: The name in texts.
        suffixes: Suffixes in lower case; a file without any of them gets the first.
        fixed_inputs: Whether the file fixes names, types and dimensions of the inputs; otherwise a job may change them.
        typed_inputs: Whether the file declares the types of its inputs.
        free_batch: Whether a first dimension shared by all inputs is the batch, even if the file fixes it. A job
            starts with the file's size.
        leading_batch: Whether a leading dimension without a size is the batch, because dimensions have no names.
        sweep_hint: How to save a model whose sizes can be swept.
        suffix_hints: Hints for files that are not models, by suffix.
        self_contained: Whether the file includes its inputs, so that nothing is fed.
        runs_code: Whether opening a file may run arbitrary code; such files are opened only in a sandbox.
        sniff: Whether the first 64 KiB of a file have this format; for formats without a reader.
        inputs: Reads the declared inputs on the server without the runtime. Named dimensions can be swept. Raises
            TaskFailure for a damaged file.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    fixed_inputs: bool = False
    typed_inputs: bool = True
    free_batch: bool = False
    leading_batch: bool = False
    sweep_hint: str = msg("backends.sizes_saved", "sizes are as saved")
    suffix_hints: dict[str, str] = field(default_factory=dict[str, str])
    self_contained: bool = False
    runs_code: bool = False
    sniff: Callable[[bytes], bool] | None = None
    inputs: Callable[[Path], list[Input]] | None = None


ONNX = FileFormat(
    "onnx",
    "ONNX",
    (".onnx",),
    fixed_inputs=True,
    sweep_hint=msg(
        "backends.export_named_first_dimension",
        "export it with a named first dimension to sweep it (torch.onnx.export(..., dynamic_shapes=...))",
    ),
)


def call_format(framework: str) -> FileFormat:
    """Return the file format of a framework's operator calls."""

    def inputs(path: Path) -> list[Input]:
        read_call(path)
        return []

    start = file_magic(framework)
    return FileFormat(
        call_suffix(framework)[1:],
        msg("backends.operator_calls", f"operator calls of {TITLES[framework]}"),
        (call_suffix(framework),),
        fixed_inputs=True,
        self_contained=True,
        sniff=lambda head: head.startswith(start),
        inputs=inputs,
    )


class OperatorSession(Session):
    """One operator call instead of a model. It returns no outputs, because its values are random."""

    def __init__(self, path: Path, spec: Spec) -> None:
        self._operator, self._measured = measure_file(path, spec)

    def prepare(self, feeds: Feeds) -> Any:
        """Return a call; nothing is fed."""
        return self._operator.prepare_call()

    def infer(self, prepared: Any) -> Any:
        """Run once and wait for the device."""
        prepared()
        self._operator.synchronize()

    def fetch(self, outputs: Any) -> list[Any]:
        """Return no outputs."""
        return []

    def effective(self) -> dict[str, str]:
        """Return the settings, including the times of the operator alone."""
        return {"precision": msg("backends.run", "as in the run"), "form": "operator", **self._measured}


LoadFunction = Callable[[Path, Spec, Feeds], Session]
PassFunction = Callable[[Path, Spec, Feeds, int, Path], list[ProfileFile]]


@dataclass(frozen=True)
class Backend:
    """A runtime.

    Args:
        name: Name of the backend.
        package: The pip distribution, whose version counts.
        module: The module to import.
        files: Formats of the models that it loads.
        devices: Lists the devices that the runtime can use; called in its own interpreter.
        load: (path, spec, feeds) -> Session. May compile. feeds: inputs of the first point, for runtimes that need
            shapes.
        passes: Profile passes by name: (path, spec, feeds, runs, folder) -> files. Each runs in a separate process: it
            loads the model with profiling enabled, warms up, runs and writes files into the folder.
        precisions: Precisions that a run configuration may request besides "", as far as known without a device. "auto"
            is
            for runtimes that may choose another precision than the model's; without it they must not.
        options: The backend's options with their values, the default first; () for any text.
        requires: Further pip requirements, such as "numpy<2".
        python: Python versions with packages, such as "3.9 3.10"; "" for any.
        short: Its name in the ids of run configurations, "" for the name itself.
        concurrent_sessions: Whether several runs of a loaded model can overlap.
        cpu: Whether it runs models on a CPU, so that any machine may have it.
        cpu_index: pip index with the package without GPU libraries, "" without such an index.
    """

    name: str
    package: str
    module: str
    files: tuple[FileFormat, ...]
    devices: Callable[[], list[str]]
    load: LoadFunction
    passes: dict[str, PassFunction] = field(default_factory=dict[str, PassFunction])
    precisions: tuple[Precision, ...] = ()
    options: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    requires: tuple[str, ...] = ()
    python: str = ""
    short: str = ""
    concurrent_sessions: bool = True
    cpu: bool = True
    cpu_index: str = ""

    def version(self) -> str:
        """Return the version in this interpreter. The distribution may have another name (onnxruntime-gpu)."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return str(getattr(importlib.import_module(self.module), "__version__", ""))

    @property
    def formats(self) -> tuple[str, ...]:
        """Return the names of the model formats that it loads."""
        return tuple(file.name for file in self.files)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Return the suffixes of the files that it loads."""
        return tuple(suffix for file in self.files for suffix in file.suffixes)


@cache
def all_backends() -> tuple[Backend, ...]:
    """Return every backend of the folder, sorted by name."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    return tuple(sorted((m.BACKEND for m in modules if hasattr(m, "BACKEND")), key=lambda b: b.name))


@cache
def all_formats() -> dict[str, FileFormat]:
    """Return every format by name, the formats that most backends load first."""
    files = [file for backend in all_backends() for file in backend.files]
    loaders = Counter(file.name for file in files)
    return {file.name: file for file in sorted(files, key=lambda file: (-loaders[file.name], file.name))}


def backend(name: str) -> Backend:
    """Return the backend of a name.

    Raises:
        KeyError: There is no such backend.
    """
    return {backend.name: backend for backend in all_backends()}[name]


def count_operators(operators: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Return `Session.operator_placement` from the place and the type of each operator."""
    places: dict[str, dict[str, int]] = {}
    for place, kind in operators:
        kinds = places.setdefault(place, {})
        kinds[kind] = kinds.get(kind, 0) + 1
    return places


def check_inputs(job: Iterable[str], model: Iterable[str]) -> None:
    """Compare the names of a job's inputs with those of its model.

    Raises:
        TaskFailure: input_error that names the first missing or unknown input.
    """
    job_names, names = list(job), list(model)
    hint = msg("backends.models_inputs", f"the model's inputs are {', '.join(names) or 'none'}")
    for name in names:
        if name not in job_names:
            raise TaskFailure(
                "input_error", msg("backends.input_model_missing", f"input '{name}' of the model is missing"), hint
            )
    for name in job_names:
        if name not in names:
            raise TaskFailure("input_error", msg("backends.model_no_input", f"the model has no input '{name}'"), hint)


def resolve_options(spec: Spec, options: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the value of each option: that of the run configuration, otherwise the first value ("" for any text).

    Raises:
        TaskFailure: input_error for an unknown option or value.
    """
    for name, value in spec.options.items():
        values = options.get(name)
        if values is None:
            hint = msg("backends.it_has", f"it has {', '.join(sorted(options)) or 'none'}")
            raise TaskFailure(
                "input_error",
                msg("backends.spec_no_option", f"spec '{spec.id}': {spec.backend} has no option '{name}'"),
                hint,
            )
        if values and value not in values:
            raise TaskFailure(
                "input_error",
                msg("backends.spec_option", f"spec '{spec.id}': option {name} is '{value}'"),
                f"use {', '.join(values)}",
            )
    return {name: spec.options.get(name, values[0] if values else "") for name, values in options.items()}


def integer_option(spec: Spec, options: dict[str, str], name: str) -> int:
    """Return an option as a number; 0 if it is not set.

    Raises:
        TaskFailure: input_error unless it is a number from 1 to 1024.
    """
    text = options[name]
    if text and not (text.isdecimal() and 1 <= int(text) <= MAX_OPTION_VALUE):
        raise TaskFailure(
            "input_error",
            msg("backends.spec_option", f"spec '{spec.id}': option {name} is '{text}'"),
            msg("backends.number_1", f"use a number from 1 to {MAX_OPTION_VALUE}"),
        )
    return int(text or 0)
