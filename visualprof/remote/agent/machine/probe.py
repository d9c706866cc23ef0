"""Detects the hardware and the runtimes of this machine."""

from __future__ import annotations

import json
import os
import platform
import shutil
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
    """A Python that may have runtimes; by default the agent's own.

    Attributes:
        python: Name or path of the interpreter; a path becomes absolute, because children run in other folders.
        backend: The only backend to look for; "" for any.
    """

    python: str = sys.executable
    backend: str = ""

    def __post_init__(self) -> None:
        path = Path(self.python).expanduser()
        object.__setattr__(self, "python", str(Path(shutil.which(path) or path).absolute()))


@dataclass(frozen=True)
class InterpreterInfo:
    """The contents of an interpreter, found without importing a runtime.

    Attributes:
        version: Python version.
        prefixes: Folders that the interpreter reads.
        backends: Names of its backends.
        converters: Names of its converters.
    """

    version: str
    prefixes: tuple[str, ...]
    backends: list[str]
    converters: list[str]


@dataclass(frozen=True)
class Machine:
    """Description of a machine with its interpreters.

    Attributes:
        capabilities: The description that the server gets.
        prefixes: Folders that each interpreter reads, by the interpreter's path.
        converters: Interpreters that have each converter, by its name.
    """

    capabilities: Capabilities
    prefixes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    converters: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])

    def newest_runtime(self, spec: Spec) -> Runtime | None:
        """Return the newest runtime that fits a run configuration; `None` if no runtime fits."""
        return next(iter(self.matching_runtimes(spec)), None)

    def matching_runtimes(self, spec: Spec) -> list[Runtime]:
        """Return every runtime that fits a run configuration, newest first."""
        fitting = [
            r
            for r in self.capabilities.runtimes
            if r.backend == spec.backend and spec.version in ("", r.version) and spec.device in r.devices
        ]
        return sorted(fitting, key=lambda runtime: version_key(runtime.version), reverse=True)

    def prefixes_for(self, python: str, all_interpreters: bool) -> tuple[str, ...]:
        """Return the folders that an interpreter reads.

        Args:
            python: Path of the interpreter.
            all_interpreters: Return the folders of all interpreters, for a stage that starts others.
        """
        prefixes = self.prefixes.values() if all_interpreters else [self.prefixes.get(python, ())]
        return tuple(sorted({folder for folders in prefixes for folder in folders}))

    def devices(self) -> list[str]:
        """Return every device that some runtime can use."""
        return sorted({device for runtime in self.capabilities.runtimes for device in runtime.devices})


def probe_machine(interpreters: Iterable[Interpreter], tags: list[str], level: int, nvml: Nvml, say: Say) -> Machine:
    """Inspect every interpreter and describe the machine.

    Args:
        interpreters: An interpreter that does not answer is reported to `say` and left out.
        tags: Tags of the machine.
        level: Level of the sandbox.
        nvml: GPU readings.
        say: Takes lines about problems.
    """
    prefixes: dict[str, tuple[str, ...]] = {}
    runtimes: dict[tuple[str, str], Runtime] = {}
    converters: dict[str, list[str]] = {}
    for interpreter in interpreters:
        if (info := inspect_interpreter(interpreter, say)) is None:
            continue
        prefixes[interpreter.python] = info.prefixes
        for name in info.converters:
            converters.setdefault(name, []).append(interpreter.python)
        for runtime in _usable_runtimes(interpreter, info, say):
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
    """Return the platform of a machine. An ARM board with a GPU is `arm`, because it needs the packages of ARM."""
    if machine.startswith(("aarch64", "arm")):
        return "arm"
    return "cuda" if gpu else "x86"


def inspect_interpreter(interpreter: Interpreter, say: Say) -> InterpreterInfo | None:
    """Return the contents of an interpreter; `None` if it does not answer, which is reported to `say`."""
    python, wanted_backend = interpreter.python, interpreter.backend
    try:
        answer = run_probe(python)
        names = [name for name in answer["backends"] if wanted_backend in ("", name)]
        converters = [] if wanted_backend else list(map(str, answer["converters"]))
        prefixes = tuple(map(str, answer["prefixes"]))
        info = InterpreterInfo(str(answer["python_version"]), prefixes, names, converters)
    except (ProbeError, KeyError, TypeError) as error:
        say(f"{python} cannot be used: {error}")
        return None
    if wanted_backend and not names:
        say(f"{python} has no {wanted_backend}")
    return info


def _usable_runtimes(interpreter: Interpreter, info: InterpreterInfo, say: Say) -> Iterator[Runtime]:
    """Yield the runtimes of an interpreter that can be imported."""
    for name in info.backends:
        try:
            detail = run_probe(interpreter.python, name)
            devices = list(map(str, detail["devices"]))
            yield Runtime(name, str(detail["version"]), interpreter.python, info.version, devices)
        except (ProbeError, KeyError, TypeError) as error:  # noqa: PERF203 - each runtime alone
            say(f"{name} of {interpreter.python} cannot be used: {error}")


class ProbeError(Exception):
    """An interpreter did not answer."""


def run_probe(python: str, *arguments: str) -> dict[str, Any]:
    """Run probe.pyz in an interpreter and return its answer.

    Raises:
        ProbeError: The interpreter did not answer.
    """
    with tempfile.TemporaryDirectory(prefix="visualprof-probe-") as folder:
        archive = Path(folder, "probe.pyz")
        archive.write_bytes(bundle.probe_archive())
        command, env = [python, "-I", str(archive), *arguments], Sandbox(Path(folder), Path(python)).environment()
        try:
            result = subprocess.run(command, env=env, capture_output=True, timeout=PROBE_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise ProbeError(f"no answer within {PROBE_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise ProbeError(error.strerror) from None
    try:
        return json.loads(result.stdout)
    except ValueError:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ProbeError(lines[-1][:300] if lines else f"it ended with status {result.returncode}") from None
