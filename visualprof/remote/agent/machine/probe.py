"""What this machine is and which runtimes it has."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from visualprof import __version__
from visualprof.remote.agent import bundle
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.work import sandbox
from visualprof.remote.protocol import Capabilities, Gpu, Platform, Runtime, version_order

PATIENCE_S = 120.0
Say = Callable[[str], object]


@dataclass(frozen=True)
class Interpreter:
    """A Python that may have runtimes. backend: the only one that it is asked for, "" any."""

    python: str
    backend: str = ""


@dataclass(frozen=True)
class Found:
    """Of a machine. prefixes: folders that each interpreter reads, by its path."""

    capabilities: Capabilities
    prefixes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])

    def runtime(self, backend: str, version: str, device: str) -> Runtime | None:
        """The newest runtime that a spec can have."""
        fits = [
            each
            for each in self.capabilities.runtimes
            if each.backend == backend and version in ("", each.version) and device in each.devices
        ]
        return max(fits, key=lambda each: version_order(each.version), default=None)

    def devices(self) -> list[str]:
        """Every device that some runtime can use."""
        return sorted({device for each in self.capabilities.runtimes for device in each.devices})


def probe(interpreters: Iterable[Interpreter], tags: list[str], level: int, nvml: Nvml, say: Say) -> Found:
    """Asks every interpreter; one that does not answer is told to `say` and left out."""
    gpus = nvml.gpus()
    prefixes: dict[str, tuple[str, ...]] = {}
    runtimes: list[Runtime] = []
    for each in interpreters:
        for runtime, folders in _runtimes(each, say):
            prefixes[runtime.python] = folders
            if (runtime.backend, runtime.version) not in {(r.backend, r.version) for r in runtimes}:
                runtimes.append(runtime)
    return Found(_machine(gpus, runtimes, tags, level), prefixes)


def _machine(gpus: list[Gpu], runtimes: list[Runtime], tags: list[str], level: int) -> Capabilities:
    return Capabilities(
        platform=platform_of(platform.machine(), bool(gpus)),
        machine=platform.machine(),
        system=f"{platform.system()} {platform.release()}",
        hostname=platform.node(),
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        sandbox=level,
        version=__version__,
        gpus=gpus,
        runtimes=runtimes,
        tags=tags,
    )


def platform_of(machine: str, gpu: bool) -> Platform:
    """A board with a GPU is still a board: its packages are those of ARM."""
    if machine.startswith(("aarch64", "arm")):
        return "arm"
    return "cuda" if gpu else "x86"


def _cpu() -> str:
    """The processor's name; boards have none in /proc/cpuinfo, but name themselves."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        text = ""
    found = re.search(r"^(?:model name|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    board = Path("/proc/device-tree/model")
    if not found and board.exists():
        return board.read_text("utf-8", "replace").strip("\0\n ")
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def _runtimes(interpreter: Interpreter, say: Say) -> list[tuple[Runtime, tuple[str, ...]]]:
    found: list[tuple[Runtime, tuple[str, ...]]] = []
    try:
        there = ask(interpreter.python)
        names = [n for n in there["backends"] if interpreter.backend in ("", n)]
        folders = tuple(str(each) for each in there["prefixes"])
    except (ProbeError, KeyError, TypeError) as error:
        say(f"{interpreter.python} cannot be used: {error}")
        return []
    if interpreter.backend and not names:
        say(f"{interpreter.python} has no {interpreter.backend}")
    for name in names:
        try:
            told = ask(interpreter.python, name)
            version = str(there["python_version"])
            runtime = Runtime(
                name, str(told["version"]), interpreter.python, version, [str(d) for d in told["devices"]]
            )
            found.append((runtime, folders))
        except (ProbeError, KeyError, TypeError) as error:  # noqa: PERF203 - each runtime alone
            say(f"{name} of {interpreter.python} cannot be used: {error}")
    return found


class ProbeError(Exception):
    """An interpreter did not answer."""


def ask(python: str, *arguments: str) -> dict[str, Any]:
    """What probe.pyz says in an interpreter. Raises: ProbeError."""
    with tempfile.TemporaryDirectory(prefix="visualprof-probe-") as folder:
        archive = Path(folder, "probe.pyz")
        archive.write_bytes(bundle.probe_archive())
        place = sandbox.Place(Path(folder), (), Path(python), (), "", "probe", "")
        command = [python, "-I", str(archive), *arguments]
        try:
            done = subprocess.run(
                command, env=sandbox.environment(place), capture_output=True, timeout=PATIENCE_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise ProbeError(f"no answer within {PATIENCE_S:g} s") from None
        except OSError as error:
            raise ProbeError(error.strerror) from None
    try:
        return json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ProbeError(lines[-1][:300] if lines else f"it ended with status {done.returncode}") from None


def own() -> Interpreter:
    """The interpreter of the agent itself."""
    return Interpreter(sys.executable)
