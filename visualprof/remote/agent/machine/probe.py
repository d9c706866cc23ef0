"""What this machine is and which runtimes it has."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from visualprof import __version__
from visualprof.remote.agent import bundle
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.sandbox import Sandbox
from visualprof.remote.processor import cpu_name
from visualprof.remote.protocol import Capabilities, Platform, Runtime, Spec, version_key

PROBE_TIMEOUT_S = 120.0
Say = Callable[[str], object]


@dataclass(frozen=True)
class Interpreter:
    """A Python that may have runtimes, by default the agent's own. backend: the only one it is asked for, "" any."""

    python: str = sys.executable
    backend: str = ""


@dataclass(frozen=True)
class InterpreterInfo:
    """What an interpreter has, found without importing it. prefixes: folders that it reads."""

    version: str
    prefixes: tuple[str, ...]
    backends: list[str]
    converters: list[str]


@dataclass(frozen=True)
class Machine:
    """What a machine is and has.

    prefixes: folders that each interpreter reads, by its path. converters: the interpreters that have each.
    """

    capabilities: Capabilities
    prefixes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    converters: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])

    def newest_runtime(self, spec: Spec) -> Runtime | None:
        """The newest runtime that fits a spec."""
        return next(iter(self.matching_runtimes(spec)), None)

    def matching_runtimes(self, spec: Spec) -> list[Runtime]:
        """Every runtime that fits a spec, the newest first."""
        fitting = [
            r
            for r in self.capabilities.runtimes
            if r.backend == spec.backend and spec.version in ("", r.version) and spec.device in r.devices
        ]
        return sorted(fitting, key=lambda runtime: version_key(runtime.version), reverse=True)

    def prefixes_for(self, python: str, all_interpreters: bool) -> tuple[str, ...]:
        """Folders that an interpreter reads; everything: those of all, for a stage that starts others."""
        whose = self.prefixes.values() if all_interpreters else [self.prefixes.get(python, ())]
        return tuple(sorted({folder for folders in whose for folder in folders}))

    def devices(self) -> list[str]:
        """Every device that some runtime can use."""
        return sorted({device for runtime in self.capabilities.runtimes for device in runtime.devices})


def probe_machine(interpreters: Iterable[Interpreter], tags: list[str], level: int, nvml: Nvml, say: Say) -> Machine:
    """Ask every interpreter; one that does not answer is told to `say` and left out. level: of the sandbox."""
    prefixes: dict[str, tuple[str, ...]] = {}
    runtimes: dict[tuple[str, str], Runtime] = {}
    converters: dict[str, list[str]] = {}
    for interpreter in interpreters:
        if (has := inspect_interpreter(interpreter, say)) is None:
            continue
        prefixes[interpreter.python] = has.prefixes
        for name in has.converters:
            converters.setdefault(name, []).append(interpreter.python)
        for runtime in _runtimes(interpreter, has, say):
            runtimes.setdefault((runtime.backend, runtime.version), runtime)
    gpus = nvml.gpus()
    capabilities = Capabilities(
        platform=detect_platform(platform.machine(), bool(gpus)),
        machine=platform.machine(),
        system=f"{platform.system()} {platform.release()}",
        hostname=platform.node(),
        cpu=cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        sandbox=level,
        version=__version__,
        gpus=gpus,
        runtimes=list(runtimes.values()),
        tags=tags,
        converters=sorted(converters),
    )
    return Machine(capabilities, prefixes, converters)


def detect_platform(machine: str, gpu: bool) -> Platform:
    """The platform of a machine; an ARM board with a GPU is `arm`, for its packages are those of ARM."""
    if machine.startswith(("aarch64", "arm")):
        return "arm"
    return "cuda" if gpu else "x86"


def inspect_interpreter(interpreter: Interpreter, say: Say) -> InterpreterInfo | None:
    """What an interpreter has; None after a word to `say` where it does not answer."""
    python, only = interpreter.python, interpreter.backend
    try:
        told = run_probe(python)
        names = [name for name in told["backends"] if only in ("", name)]
        converters = [] if only else list(map(str, told["converters"]))
        prefixes = tuple(map(str, told["prefixes"]))
        found = InterpreterInfo(str(told["python_version"]), prefixes, names, converters)
    except (ProbeError, KeyError, TypeError) as error:
        say(f"{python} cannot be used: {error}")
        return None
    if only and not names:
        say(f"{python} has no {only}")
    return found


def _runtimes(interpreter: Interpreter, has: InterpreterInfo, say: Say) -> Iterator[Runtime]:
    """The runtimes of an interpreter."""
    for name in has.backends:
        try:
            detail = run_probe(interpreter.python, name)
            devices = list(map(str, detail["devices"]))
            yield Runtime(name, str(detail["version"]), interpreter.python, has.version, devices)
        except (ProbeError, KeyError, TypeError) as error:  # noqa: PERF203 - each runtime alone
            say(f"{name} of {interpreter.python} cannot be used: {error}")


class ProbeError(Exception):
    """An interpreter did not answer."""


def run_probe(python: str, *arguments: str) -> dict[str, Any]:
    """What probe.pyz says in an interpreter. Raises: ProbeError."""
    with tempfile.TemporaryDirectory(prefix="visualprof-probe-") as folder:
        archive = Path(folder, "probe.pyz")
        archive.write_bytes(bundle.probe_archive())
        command, env = [python, "-I", str(archive), *arguments], Sandbox(Path(folder), Path(python)).environment()
        try:
            done = subprocess.run(command, env=env, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise ProbeError(f"no answer within {PROBE_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise ProbeError(error.strerror) from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ProbeError(lines[-1][:300] if lines else f"it ended with status {done.returncode}") from None
