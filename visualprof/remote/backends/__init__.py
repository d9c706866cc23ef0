"""One file a runtime, each with a `BACKEND`; found by listing this folder.

The files import nothing heavy at their top: an agent reads what a backend offers without its runtime.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from visualprof.remote.protocol import Reason, Spec

Feeds = dict[str, Any]  # arrays of numpy by the input's name, in the order of the request


class Refused(Exception):
    """A model, its inputs or a spec cannot be run as asked; it ends the task with this reason."""

    def __init__(self, reason: Reason, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.reason: Reason = reason
        self.error = error
        self.hint = hint


def check_inputs(given: Iterable[str], wanted: Iterable[str]) -> None:
    """The names of the job's inputs are those of the model.

    Raises: Refused: input_error that names the first one that is missing or unknown.
    """
    given, wanted = list(given), list(wanted)
    there = f"the model's inputs are {', '.join(wanted) or 'none'}"
    for name in wanted:
        if name not in given:
            raise Refused("input_error", f"input '{name}' of the model is missing", there)
    for name in given:
        if name not in wanted:
            raise Refused("input_error", f"the model has no input '{name}'", there)


def choose(spec: Spec, options: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """The value of each option of a backend: what the spec says, else the first of its values ("" for any text).

    Raises: Refused: input_error for an option or a value that the backend does not have.
    """
    for name, value in spec.options.items():
        values = options.get(name)
        if values is None:
            raise Refused("input_error", f"spec '{spec.id}': {spec.backend} has no option '{name}'", _options(options))
        if values and value not in values:
            raise Refused("input_error", f"spec '{spec.id}': option {name} is '{value}'", f"use {', '.join(values)}")
    return {name: spec.options.get(name, values[0] if values else "") for name, values in options.items()}


def _options(options: dict[str, tuple[str, ...]]) -> str:
    return f"it has {', '.join(sorted(options))}" if options else "it has none"


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
    """A loaded model."""

    def prepare(self, feeds: Feeds) -> Any:
        """Inputs as the runtime wants them, on the device; not part of core time."""
        ...

    def infer(self, prepared: Any) -> Any:
        """One run; the device has finished when it returns."""
        ...

    def fetch(self, outputs: Any) -> list[Any]:
        """Outputs as numpy arrays; not part of core time."""
        ...

    def effective(self) -> dict[str, str]:
        """What really runs: precision, providers, threads, ..."""
        ...

    def memory_bytes(self) -> int | None:
        """Peak memory of the device, None where it is the host's or not known."""
        ...

    def close(self) -> None:
        """Frees it."""
        ...


class Backend(Protocol):
    """A runtime.

    name: of the backend. package: the distribution that pip installs, with its version. module: what is imported.
    formats: names of the model formats (as in reader.models) that it loads. suffixes: of their files.
    passes: names of its profile passes, each run in a process of its own.
    requires: further requirements for pip, e.g. "numpy<2". python: versions it has wheels for, "" any.
    """

    name: str
    package: str
    module: str
    formats: tuple[str, ...]
    suffixes: tuple[str, ...]
    passes: tuple[str, ...]
    requires: tuple[str, ...]
    python: str
    precisions: tuple[str, ...]  # that a spec may ask for beside "", as far as no device is needed to know
    options: dict[str, tuple[str, ...]]  # the backend's own options and their values, the default first; () any text

    def devices(self) -> list[str]:
        """Devices that the runtime can use; called in its own interpreter."""
        ...

    def load(self, path: Path, spec: Spec, feeds: Feeds) -> Session:
        """Loads a model; may compile it. feeds: inputs of the first point, for runtimes that need shapes."""
        ...

    def profile(self, name: str, path: Path, spec: Spec, feeds: Feeds, runs: int, out: Path) -> list[ProfileFile]:
        """One of `passes`: loads the model again with profiling on, warms up, runs it and writes files into `out`."""
        ...


@cache
def all_backends() -> tuple[Backend, ...]:
    """Every backend of the folder, by name."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    return tuple(sorted((m.BACKEND for m in modules if hasattr(m, "BACKEND")), key=lambda b: b.name))


def backend(name: str) -> Backend:
    """The backend of that name.

    Raises: KeyError.
    """
    return {each.name: each for each in all_backends()}[name]
