"""One file a runtime, each with a `BACKEND`; found by listing this folder.

The files import nothing heavy at their top: server and agent read what a backend offers without its runtime.
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
from visualprof.remote.operators.alone import call_suffix, measure_file, read_call
from visualprof.remote.protocol import Input, Precision, Spec, TaskFailure

MAX_OPTION_VALUE = 1024  # of threads or streams

Feeds = dict[str, Any]  # arrays of numpy by the input's name, in the order of the request


@dataclass(frozen=True)
class ProfileFile:
    """A file that a profile pass wrote. name: below the result's folder. start_ns: epoch of its time 0, -1 unknown.

    counters: how the monitor's samples can be added to it: "chrome_list" (a list of events), "chrome_object"
    (`traceEvents`), "" not at all. Time stamps of both are us since start_ns.
    """

    name: str
    start_ns: int = -1
    counters: str = ""


class Session(Protocol):
    """A loaded model. One run is `fetch(infer(prepare(feeds)))`, of which `infer` alone is the latency."""

    def prepare(self, feeds: Feeds) -> Any:
        """Inputs as the runtime wants them, on the device."""
        return feeds

    def infer(self, prepared: Any) -> Any:
        """One run; the device has finished when it returns."""
        ...

    def fetch(self, outputs: Any) -> list[Any]:
        """Outputs as numpy arrays."""
        return list(outputs)

    def concurrent_sessions(self, count: int) -> Sequence[Session]:
        """Sessions of the loaded model that run at once: each is prepared, run and closed by a thread of its own.

        As it is here: threads can share the session, which has nothing to close.
        """
        return [self] * count

    def best_concurrency(self) -> int:
        """How many of them give the most runs a second, as far as the runtime knows."""
        return 1

    def effective(self) -> dict[str, str]:
        """What really runs: precision, providers, threads, ..."""
        return {}

    def operator_placement(self) -> dict[str, dict[str, int]]:
        """How many operators of each kind run where, as the runtime tells: providers, delegates, precisions.

        {} where it does not tell.
        """
        return {}

    def memory_bytes(self) -> int | None:
        """Peak memory of the device since the last `prepare`, None where it is the host's or not known."""
        return None

    def close(self) -> None:
        """Leave the modes that it entered; memory is freed with the process."""
        return


@dataclass(frozen=True)
class FileFormat:
    """A format of model files, and what a job has to know of it.

    Args:
        name: of the format; that of `reader.models` where a reader knows it.
        title: what texts call it.
        suffixes: of its files in lower case; a file with none of them gets the first.
        fixed_inputs: the file says names, types and dimensions of its inputs for good; else a job may change them.
        typed_inputs: the file says the types of its inputs.
        free_batch: sizes follow the data: a first dimension that all inputs share is the batch, whatever the file
            says, and a job starts with the file's size of it.
        leads_batch: it cannot name dimensions: one without a size that comes first is the batch.
        sweep_hint: how to save a model whose sizes can be swept.
        near: what to do with a file that is no model, by its suffix.
        own_inputs: the file says what it is run on, so that nothing is fed.
        runs_code: to open a file may run what its maker wished: that is done in a sandbox alone.
        sniff: whether the first 64 KiB of a file are of this format; for one that no reader knows.
        inputs: inputs that such a file declares, read on the server without the runtime; texts among the dimensions
            can be swept. Raises TaskFailure for a damaged file.
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
    """The files with calls of a framework, as its backend loads them."""

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
    """One call of an operator in the place of a model. It gives nothing back: its values are random."""

    def __init__(self, path: Path, spec: Spec) -> None:
        self._operator, self._measured = measure_file(path, spec)

    def prepare(self, feeds: Feeds) -> Any:
        """A call; nothing is fed."""
        return self._operator.prepare_call()

    def infer(self, prepared: Any) -> Any:
        """One run; waits for the device."""
        prepared()
        self._operator.synchronize()

    def fetch(self, outputs: Any) -> list[Any]:
        """Nothing."""
        return []

    def effective(self) -> dict[str, str]:
        """What it takes alone, too."""
        return {"precision": msg("backends.run", "as in the run"), "form": "operator", **self._measured}


LoadFunction = Callable[[Path, Spec, Feeds], Session]
PassFunction = Callable[[Path, Spec, Feeds, int, Path], list[ProfileFile]]


@dataclass(frozen=True)
class Backend:
    """A runtime.

    Args:
        name: of the backend.
        package: the distribution that pip installs, with its version.
        module: what is imported.
        files: formats of the models that it loads.
        devices: lists the devices that the runtime can use; called in its own interpreter.
        load: (path, spec, feeds) -> Session. May compile. feeds: inputs of the first point, for runtimes that need
            shapes.
        passes: profile passes by name: (path, spec, feeds, runs, folder) -> files. Each is run in a process of its
            own: loads the model again with profiling on, warms up, runs it and writes files into the folder.
        precisions: that a spec may ask for beside "", as far as no device is needed to know. "auto" is for those that
            choose another one than the model's by themselves; without it they must not.
        options: the backend's own options and their values, the default first; () any text.
        requires: further requirements for pip, e.g. "numpy<2".
        python: versions it has packages for, e.g. "3.9 3.10", "" any.
        short: its name in the ids of specs, "" the name itself.
        lanes: whether several runs of a loaded model can go on at once.
        cpu: whether it runs models on a CPU, so that any machine may have it.
        cpu_index: where pip finds the package without the libraries of a GPU, "" where it has none.
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
        """Version of the runtime in this interpreter; the distribution may have another name (onnxruntime-gpu)."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return str(getattr(importlib.import_module(self.module), "__version__", ""))

    @property
    def formats(self) -> tuple[str, ...]:
        """Names of the model formats that it loads."""
        return tuple(file.name for file in self.files)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of the files that it loads."""
        return tuple(suffix for file in self.files for suffix in file.suffixes)


@cache
def all_backends() -> tuple[Backend, ...]:
    """Every backend of the folder, by name."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    return tuple(sorted((m.BACKEND for m in modules if hasattr(m, "BACKEND")), key=lambda b: b.name))


@cache
def all_formats() -> dict[str, FileFormat]:
    """Every format that some backend loads, by name, in the order of how many load it."""
    files = [file for backend in all_backends() for file in backend.files]
    loaders = Counter(file.name for file in files)
    return {file.name: file for file in sorted(files, key=lambda file: (-loaders[file.name], file.name))}


def backend(name: str) -> Backend:
    """The backend of that name.

    Raises: KeyError.
    """
    return {backend.name: backend for backend in all_backends()}[name]


def count_operators(operators: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """`Session.places` of the place and the kind of each operator."""
    places: dict[str, dict[str, int]] = {}
    for place, kind in operators:
        kinds = places.setdefault(place, {})
        kinds[kind] = kinds.get(kind, 0) + 1
    return places


def check_inputs(job: Iterable[str], model: Iterable[str]) -> None:
    """Compare the names of a job's inputs with those of its model.

    Raises: TaskFailure: input_error that names the first one that is missing or unknown.
    """
    ours, names = list(job), list(model)
    hint = msg("backends.models_inputs", f"the model's inputs are {', '.join(names) or 'none'}")
    for name in names:
        if name not in ours:
            raise TaskFailure(
                "input_error", msg("backends.input_model_missing", f"input '{name}' of the model is missing"), hint
            )
    for name in ours:
        if name not in names:
            raise TaskFailure("input_error", msg("backends.model_no_input", f"the model has no input '{name}'"), hint)


def resolve_options(spec: Spec, options: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """The value of each option of a backend: what the spec says, else the first of its values ("" for any text).

    Raises: TaskFailure: input_error for an option or a value that the backend does not have.
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
    """The number that an option is; 0 where it is not given.

    Raises: TaskFailure: input_error for anything that is no number of 1 to 1024.
    """
    text = options[name]
    if text and not (text.isdecimal() and 1 <= int(text) <= MAX_OPTION_VALUE):
        raise TaskFailure(
            "input_error",
            msg("backends.spec_option", f"spec '{spec.id}': option {name} is '{text}'"),
            msg("backends.number_1", f"a number of 1 to {MAX_OPTION_VALUE}"),
        )
    return int(text or 0)
