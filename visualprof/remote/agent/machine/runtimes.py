"""Python environments that have a runtime or a converter each: where they are, and how one is made."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from visualprof.remote.agent.errors import AgentError
from visualprof.remote.agent.machine.nvml import Nvml
from visualprof.remote.agent.machine.probe import Interpreter, Machine, ProbeError, Say, probe_machine, run_probe
from visualprof.remote.backends import Backend, all_backends
from visualprof.remote.cases.requirements import lines_of
from visualprof.remote.converters import Converter, all_converters
from visualprof.remote.protocol import Gpu

FOLDER_VARIABLE = "VISUALPROF_RUNTIMES"
PYTHON_PATTERNS = (
    "~/.pyenv/versions/*/bin/python", "/opt/conda/bin/python", "/opt/conda/envs/*/bin/python",
    "~/*conda*/bin/python", "~/*conda*/envs/*/bin/python", "~/*mambaforge*/envs/*/bin/python",
    "~/miniforge*/envs/*/bin/python", "~/.local/share/uv/python/*/bin/python3", "/opt/python*/bin/python3",
)  # fmt: skip
ASK = "import json, sys; print(json.dumps([sys.version_info[:2], sys.prefix == sys.base_prefix]))"
VERSION_TIMEOUT_S = 20.0
ASKED_AT_ONCE = 4
SHIMS = "/shims/"  # pyenv's scripts, which stand for the interpreters of PLACES
_NAME = re.compile(r"python(3(\.\d+)?)?")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:==([A-Za-z0-9.+!_-]+))?")


@dataclass(frozen=True)
class Python:
    """A Python of this machine. version: "3.10"."""

    path: str
    version: str


@dataclass(frozen=True)
class EnvironmentRecipe:
    """What an environment gets: a package and others. python: versions that have it.

    cpu_index: where pip finds `from_index`, "" the package itself, without the libraries of a GPU.
    """

    name: str
    package: str
    requires: tuple[str, ...]
    python: str = ""
    cpu_index: str = ""
    from_index: str = ""


def _find_gpus() -> list[Gpu]:
    return Nvml().gpus()


def runtimes_folder() -> Path:
    """Where environments are made and looked for."""
    if chosen := os.environ.get(FOLDER_VARIABLE):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share", "visualprof", "runtimes")


def folder_stamp(runtimes: Path) -> int:
    """A number that changes when an environment is made or removed."""
    try:
        return runtimes.stat().st_mtime_ns
    except OSError:
        return 0


def installed_pythons(runtimes: Path) -> list[str]:
    """The interpreters of the environments in a folder; one that is being made is not among them."""
    pythons = sorted(runtimes.glob("*/bin/python")) if runtimes.is_dir() else []
    return [str(path) for path in pythons if not path.parts[-3].startswith(".")]


def probe_all(named: list[Interpreter], tags: list[str], level: int, nvml: Nvml, say: Say) -> Machine:
    """What the machine has, by the interpreters that were named, the installed environments, and the agent's own."""
    return probe_machine(
        [*named, *map(Interpreter, installed_pythons(runtimes_folder())), Interpreter()], tags, level, nvml, say
    )


def install(
    requirement: str,
    python: str,
    runtimes: Path,
    say: Say,
    index_url: str = "",
    find_gpus: Callable[[], list[Gpu]] = _find_gpus,
    requirements_file: Path | None = None,
) -> Path:
    """Make an environment with a backend's package, e.g. "megengine==1.13.0"; pip's output goes to the terminal.

    Args:
        requirement: name of a backend or a converter, with `==version` or without.
        python: the interpreter to start from, "" the first that fits.
        runtimes: the folder that gets it.
        say: takes a line about the progress.
        index: where pip looks for the backend's package; "" where a machine without a GPU finds a small one, else
            where pip looks by itself.
        gpus: finds those of this machine.
        more: a file of pip's with further packages, as benchmark cases have; its folder's name is part of the result's.
    Returns: its folder. An environment of that name is replaced once the new one works.
    Raises: AgentError.
    """
    kit, version = _parsed(requirement)
    if requirements_file:
        kit = _with(kit, requirements_file)
    base = _chosen(kit, python)
    say(f"{kit.name} with Python {base.version} ({base.path})")
    if not index_url and kit.cpu_index and not find_gpus():
        index_url = kit.cpu_index
        say(f"no NVIDIA GPU was found, so it comes without CUDA from {index_url}; --index-url chooses another place")
    runtimes.mkdir(parents=True, exist_ok=True)
    part = runtimes / f".{kit.name}-{os.getpid()}"
    try:
        _make(kit, version, base, part, index_url)
        actual = _verified(kit, part)
        target = runtimes / "-".join(
            (kit.name, actual, *([requirements_file.absolute().parent.name] if requirements_file else []))
        )
        _move_scripts(part, target)
        if target.exists():
            shutil.rmtree(target)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    say(f"{kit.name} {actual} is ready in {target}")
    return target


def _parsed(requirement: str) -> tuple[EnvironmentRecipe, str]:
    """The kit and the version that a requirement names."""
    every = (*map(_of_converter, all_converters()), *map(_of_backend, all_backends()))
    kits = {kit.name: kit for kit in every}
    if match := _REQUIREMENT.fullmatch(requirement.strip()):
        for kit in kits.values():
            if match[1].lower() == kit.name:
                return kit, match[2] or ""
        for backend in all_backends():
            if match[1].lower() == backend.package.lower():
                return kits[backend.name], match[2] or ""
    hint = f"one of {', '.join(each.name for each in all_backends())}, with ==version or without"
    tools = ", ".join(each.name for each in all_converters())
    raise AgentError(f"{requirement!r} names no backend and no converter", f"{hint}; or of {tools}")


def _of_backend(backend: Backend) -> EnvironmentRecipe:
    return EnvironmentRecipe(backend.name, backend.package, backend.requires, backend.python, backend.cpu_index)


def _of_converter(converter: Converter) -> EnvironmentRecipe:
    """What a converter needs, first what names it; the runtime of its first module says where pip finds that."""
    first, *others = converter.needs.values()
    base = next((each for each in all_backends() if each.module in converter.needs), None)
    requires = (*others, *(base.requires if base else ()))
    index = base.cpu_index if base and base.package == first else ""
    return EnvironmentRecipe(converter.name, first, requires, base.python if base else "", index)


def _with(kit: EnvironmentRecipe, file: Path) -> EnvironmentRecipe:
    """A kit with the packages of a file. Raises: AgentError: it cannot be read."""
    try:
        lines = lines_of(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise AgentError(f"{file}: {error}", "name a file as pip's -r takes it") from None
    torch = next((each for each in all_backends() if each.cpu_index and each.package in lines), None)
    first = {"cpu_index": torch.cpu_index, "from_index": torch.package} if torch else {}
    return replace(kit, requires=(*kit.requires, *lines), **first)


def _chosen(kit: EnvironmentRecipe, path: str) -> Python:
    """The Python to start from. Raises: AgentError: none fits."""
    if path:
        python = _python(path)
        if python is None:
            raise AgentError(f"{path} is no Python that works", "give --python the path of an interpreter")
        return python
    everything = find_pythons()
    for python in everything:
        if supports_python(python.version, kit.python):
            return python
    versions = ", ".join(sorted({python.version for python in everything})) or "none"
    raise AgentError(
        f"{kit.name} has packages for Python {kit.python} alone, and this machine has {versions}",
        f"install Python {kit.python.split()[-1]}, or give its path with --python",
    )


def supports_python(version: str, wanted: str) -> bool:
    """Whether a Python is among those that a backend has packages for: "3.8 3.9 3.10", "" any."""
    return not wanted or version in re.split(r"[\s,]+", wanted)


def find_pythons() -> list[Python]:
    """Every Python that is found, newest first, those of the same version in the order of PATH; environments last."""
    paths = [sys.executable]
    for folder in os.get_exec_path():
        paths += sorted(glob.glob(os.path.join(glob.escape(folder), "python3*")))
    beside = f"{glob.escape(str(Path(sys.base_prefix).parent))}/*/bin/python"  # wherever pyenv or uv keeps them
    for pattern in (beside, *PYTHON_PATTERNS):
        paths += sorted(glob.glob(os.path.expanduser(pattern)))
    named = [path for path in paths if _NAME.fullmatch(os.path.basename(path)) and SHIMS not in path]
    distinct = {os.path.realpath(path): path for path in reversed(named)}
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        working = [python for python in pool.map(_python, reversed(distinct.values())) if python]
    return sorted(working, key=lambda python: tuple(map(int, python.version.split("."))), reverse=True)


def _python(path: str) -> Python | None:
    """The Python at a path; None when it does not run, or is too old."""
    try:
        done = subprocess.run(
            [path, "-I", "-c", ASK],
            capture_output=True,
            timeout=VERSION_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        (major, minor), _ = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return None
    return Python(path, f"{major}.{minor}") if major == 3 and minor >= 8 else None


def _make(kit: EnvironmentRecipe, version: str, base: Python, part: Path, index: str) -> None:
    wanted = f"{kit.package}=={version}" if version else kit.package
    requires = [*kit.requires, *(() if any(r.startswith("numpy") for r in kit.requires) else ("numpy",))]
    hint = f"on Debian: apt install python{base.version}-venv; or give another Python with --python"
    _run([base.path, "-m", "venv", str(part)], hint)
    pip = [str(part / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    hint = f"is there a {wanted} for Python {base.version}? pip's lines above say it"
    if index:
        elsewhere = f"{hint}; --index-url https://pypi.org/simple is another place"
        _run([*pip, "--index-url", index, kit.from_index or wanted], elsewhere)
    _run([*pip, wanted, *requires], hint)


def _move_scripts(part: Path, target: Path) -> None:
    """The scripts of an environment name its folder: they are to work in the one that it gets."""
    for script in (part / "pyvenv.cfg", *(part / "bin").iterdir()):
        if script.is_file() and not script.is_symlink():
            text = script.read_bytes()
            if os.fsencode(part) in text and b"\0" not in text:
                script.write_bytes(text.replace(os.fsencode(part), os.fsencode(target)))


def _run(command: list[str], hint: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    status = subprocess.run(command, env=environment, check=False, stdin=subprocess.DEVNULL).returncode
    if status:
        raise AgentError(f"{' '.join(command)} ended with status {status}", hint)


def _verified(kit: EnvironmentRecipe, part: Path) -> str:
    """The version that the environment really has."""
    try:
        return str(run_probe(str(part / "bin" / "python"), kit.name)["version"])
    except ProbeError as problem:
        error = f"{kit.name} was installed and cannot be used: {problem}"
        raise AgentError(error, "its libraries may miss one of the system's") from None
