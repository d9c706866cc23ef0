"""Python environments with a runtime or a converter: how they are found and created."""

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
from visualprof.remote.cases.requirements import parse_requirements
from visualprof.remote.converters import Converter, all_converters
from visualprof.remote.protocol import Gpu

FOLDER_VARIABLE = "VISUALPROF_RUNTIMES"
PYTHON_PATTERNS = (
    "~/.pyenv/versions/*/bin/python",
    "/opt/conda/bin/python",
    "/opt/conda/envs/*/bin/python",
    "~/*conda*/bin/python",
    "~/*conda*/envs/*/bin/python",
    "~/*mambaforge*/envs/*/bin/python",
    "~/miniforge*/envs/*/bin/python",
    "~/.local/share/uv/python/*/bin/python3",
    "/opt/python*/bin/python3",
)
VERSION_SCRIPT = "import json, sys; print(json.dumps([sys.version_info[:2], sys.prefix == sys.base_prefix]))"
VERSION_TIMEOUT_S = 20.0
MAX_PARALLEL_PROBES = 4
SHIM_FOLDER = "/shims/"  # scripts of pyenv that start interpreters of PYTHON_PATTERNS
_NAME = re.compile(r"python(3(\.\d+)?)?")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:==([A-Za-z0-9.+!_-]+))?")


@dataclass(frozen=True)
class Python:
    """A Python of this machine.

    Attributes:
        path: Path of the interpreter.
        version: Such as "3.10".
    """

    path: str
    version: str


@dataclass(frozen=True)
class EnvironmentRecipe:
    """The packages of an environment.

    Attributes:
        name: Name of the backend or converter.
        package: Its main package.
        requires: Further packages.
        python: Python versions that have the package; "" for any.
        cpu_index: Package index with builds without GPU libraries.
        from_index: Package to install from that index; "" for `package`.
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
    """Return the folder of the environments."""
    if chosen := os.environ.get(FOLDER_VARIABLE):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share", "visualprof", "runtimes")


def folder_stamp(runtimes: Path) -> int:
    """Return a number that changes when an environment is added or removed."""
    try:
        return runtimes.stat().st_mtime_ns
    except OSError:
        return 0


def installed_pythons(runtimes: Path) -> list[str]:
    """Return the interpreters of the environments in a folder, except those under construction."""
    pythons = sorted(runtimes.glob("*/bin/python")) if runtimes.is_dir() else []
    return [str(path) for path in pythons if not path.parts[-3].startswith(".")]


def probe_all(named: list[Interpreter], tags: list[str], level: int, nvml: Nvml, say: Say) -> Machine:
    """Describe the machine with the named interpreters, the installed environments and the agent's own interpreter."""
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
    """Create an environment with a package, such as "megengine==1.13.0". The output of pip goes to the terminal.

    Args:
        requirement: Name of a backend or a converter, optionally with `==version`.
        python: The base interpreter; "" for the first that fits.
        runtimes: Folder that gets the environment.
        say: Takes lines about the progress.
        index_url: Package index for the main package. By default a machine without a GPU uses the recipe's CPU index;
            otherwise pip's default applies.
        find_gpus: Returns the GPUs of this machine.
        requirements_file: File in pip's format with further packages, as benchmark cases have. The name of its folder
            becomes part of the environment's name.

    Returns:
        The folder of the environment. An existing environment of that name is replaced once the new one works.

    Raises:
        AgentError: The requirement is unknown, or the installation failed.
    """
    recipe, version = _parse_requirement(requirement)
    if requirements_file:
        recipe = _add_requirements(recipe, requirements_file)
    base = _choose_python(recipe, python)
    say(f"{recipe.name} with Python {base.version} ({base.path})")
    if not index_url and recipe.cpu_index and not find_gpus():
        index_url = recipe.cpu_index
        say(f"no NVIDIA GPU was found: installing from {index_url} without CUDA; choose another index with --index-url")
    runtimes.mkdir(parents=True, exist_ok=True)
    part = runtimes / f".{recipe.name}-{os.getpid()}"
    try:
        _create_environment(recipe, version, base, part, index_url)
        installed_version = _installed_version(recipe, part)
        target = runtimes / "-".join(
            (recipe.name, installed_version, *([requirements_file.absolute().parent.name] if requirements_file else []))
        )
        _rewrite_script_paths(part, target)
        if target.exists():
            shutil.rmtree(target)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    say(f"{recipe.name} {installed_version} is ready in {target}")
    return target


def _parse_requirement(requirement: str) -> tuple[EnvironmentRecipe, str]:
    """Return the recipe and the version that a requirement names."""
    recipes = (*map(_converter_recipe, all_converters()), *map(_backend_recipe, all_backends()))
    recipes_by_name = {recipe.name: recipe for recipe in recipes}
    if match := _REQUIREMENT.fullmatch(requirement.strip()):
        for recipe in recipes_by_name.values():
            if match[1].lower() == recipe.name:
                return recipe, match[2] or ""
        for backend in all_backends():
            if match[1].lower() == backend.package.lower():
                return recipes_by_name[backend.name], match[2] or ""
    backends = ", ".join(backend.name for backend in all_backends())
    converters = ", ".join(converter.name for converter in all_converters())
    hint = f"with or without ==version: {backends}; {converters}"
    raise AgentError(f"{requirement!r} is neither a backend nor a converter", hint)


def _backend_recipe(backend: Backend) -> EnvironmentRecipe:
    return EnvironmentRecipe(backend.name, backend.package, backend.requires, backend.python, backend.cpu_index)


def _converter_recipe(converter: Converter) -> EnvironmentRecipe:
    """Return the recipe of a converter.

    Its first requirement is the main package. A backend among its requirements decides the package index.
    """
    first, *others = converter.needs.values()
    base = next((backend for backend in all_backends() if backend.module in converter.needs), None)
    requires = (*others, *(base.requires if base else ()))
    index = base.cpu_index if base and base.package == first else ""
    return EnvironmentRecipe(converter.name, first, requires, base.python if base else "", index)


def _add_requirements(recipe: EnvironmentRecipe, file: Path) -> EnvironmentRecipe:
    """Return a recipe with the additional packages of a file.

    Raises:
        AgentError: The file cannot be read.
    """
    try:
        lines = parse_requirements(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise AgentError(f"{file}: {error}", "name a requirements file in pip's format") from None
    torch = next((backend for backend in all_backends() if backend.cpu_index and backend.package in lines), None)
    first = {"cpu_index": torch.cpu_index, "from_index": torch.package} if torch else {}
    return replace(recipe, requires=(*recipe.requires, *lines), **first)


def _choose_python(recipe: EnvironmentRecipe, path: str) -> Python:
    """Return the base interpreter.

    Raises:
        AgentError: No interpreter fits.
    """
    if path:
        python = _inspect_python(path)
        if python is None:
            raise AgentError(f"{path} is not a working Python", "give --python the path of an interpreter")
        return python
    available = find_pythons()
    for python in available:
        if supports_python(python.version, recipe.python):
            return python
    versions = ", ".join(sorted({python.version for python in available})) or "none"
    raise AgentError(
        f"{recipe.name} has packages only for Python {recipe.python}, and this machine has {versions}",
        f"install Python {recipe.python.split()[-1]}, or give its path with --python",
    )


def supports_python(version: str, supported: str) -> bool:
    """Return whether a Python version is in a list such as "3.8 3.9 3.10"; "" allows any version."""
    return not supported or version in re.split(r"[\s,]+", supported)


def find_pythons() -> list[Python]:
    """Return every Python found, newest first; the same version in the order of PATH, environments last."""
    paths = [sys.executable]
    for folder in os.get_exec_path():
        paths += sorted(glob.glob(os.path.join(glob.escape(folder), "python3*")))
    sibling_pattern = f"{glob.escape(str(Path(sys.base_prefix).parent))}/*/bin/python"  # where pyenv or uv stores them
    for pattern in (sibling_pattern, *PYTHON_PATTERNS):
        paths += sorted(glob.glob(os.path.expanduser(pattern)))
    candidates = [path for path in paths if _NAME.fullmatch(os.path.basename(path)) and SHIM_FOLDER not in path]
    by_real_path = {os.path.realpath(path): path for path in reversed(candidates)}
    with ThreadPoolExecutor(MAX_PARALLEL_PROBES) as pool:
        working = [python for python in pool.map(_inspect_python, reversed(by_real_path.values())) if python]
    return sorted(working, key=lambda python: tuple(map(int, python.version.split("."))), reverse=True)


def _inspect_python(path: str) -> Python | None:
    """Return the Python at a path; `None` if it does not run or is too old."""
    try:
        result = subprocess.run(
            [path, "-I", "-c", VERSION_SCRIPT],
            capture_output=True,
            timeout=VERSION_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        (major, minor), _ = json.loads(result.stdout)
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return None
    return Python(path, f"{major}.{minor}") if major == 3 and minor >= 8 else None


def _create_environment(recipe: EnvironmentRecipe, version: str, base: Python, part: Path, index_url: str) -> None:
    requirement = f"{recipe.package}=={version}" if version else recipe.package
    requires = [*recipe.requires, *(() if any(r.startswith("numpy") for r in recipe.requires) else ("numpy",))]
    hint = f"on Debian: apt install python{base.version}-venv; or give another Python with --python"
    _run_command([base.path, "-m", "venv", str(part)], hint)
    pip = [str(part / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    hint = f"pip's output above says whether {requirement} exists for Python {base.version}"
    if index_url:
        index_hint = f"{hint}; another index: --index-url https://pypi.org/simple"
        _run_command([*pip, "--index-url", index_url, recipe.from_index or requirement], index_hint)
    _run_command([*pip, requirement, *requires], hint)


def _rewrite_script_paths(part: Path, target: Path) -> None:
    """Replace the temporary folder in the scripts of an environment by the final one."""
    for script in (part / "pyvenv.cfg", *(part / "bin").iterdir()):
        if script.is_file() and not script.is_symlink():
            text = script.read_bytes()
            if os.fsencode(part) in text and b"\0" not in text:
                script.write_bytes(text.replace(os.fsencode(part), os.fsencode(target)))


def _run_command(command: list[str], hint: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    status = subprocess.run(command, env=environment, check=False, stdin=subprocess.DEVNULL).returncode
    if status:
        raise AgentError(f"{' '.join(command)} ended with status {status}", hint)


def _installed_version(recipe: EnvironmentRecipe, part: Path) -> str:
    """Return the version of the package that was installed."""
    try:
        return str(run_probe(str(part / "bin" / "python"), recipe.name)["version"])
    except ProbeError as problem:
        error = f"{recipe.name} was installed and cannot be used: {problem}"
        raise AgentError(error, "a library of the system may be missing") from None
