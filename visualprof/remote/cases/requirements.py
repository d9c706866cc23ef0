"""Packages that a case and its engine need, compared with what this interpreter has; nothing is imported."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from visualprof.messages import msg
from visualprof.remote.protocol import TaskFailure, version_key

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*([^;#]*)")
_CLAUSE = re.compile(r"(==|!=|>=|<=|~=|<|>)\s*([A-Za-z0-9.+!_-]+?)(\.\*)?")
MODULES = {
    "opencv-python": "cv2",
    "pillow": "PIL",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "nvidia-ml-py": "pynvml",
    "MegEngine": "megengine",
}

TRTEXEC = "trtexec"  # a command of TensorRT's, in none of pip's packages
FLAGPERF_MODULES = ("tools", "loguru", "config", "inference_engine", "benchmarks")  # its own, or ours in its place
# Of TensorRT's engines and contexts, gone with version 10.
REMOVED_IN_TENSORRT_10 = {
    "num_bindings", "get_binding_shape", "get_binding_dtype", "get_binding_index", "get_binding_name",
    "binding_is_input", "set_binding_shape", "execute_async_v2", "execute_v2", "max_batch_size", "max_workspace_size",
    "build_engine",
}  # fmt: skip


def parse_requirements(text: str) -> list[str]:
    """The requirements in a file of pip's; options such as --index-url and markers are left to pip."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("-")]


def engine_requirements(file: Path) -> tuple[str, ...]:
    """What a file of an engine needs, read off its imports; of TensorRT what it calls says which versions have it.

    Raises: TaskFailure: it is no Python.
    """
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError) as error:
        raise TaskFailure("input_error", f"{file.name}: {error}", msg("cases.python_3", "is it Python 3?")) from None
    wanted = _packages(nodes)
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    if "tensorrt" in wanted and names & REMOVED_IN_TENSORRT_10:
        wanted["tensorrt"] = "tensorrt<10"
    command = any(TRTEXEC in text for text in texts) and not shutil.which(TRTEXEC)
    return (*sorted(wanted.values()), *([TRTEXEC] if command else []))


def imported_packages(case: Path, framework: str) -> list[str]:
    """Packages that the code of a framework imports whatever happens; what it tries, or imports later, may be missing.

    Args: case: the folder of its code. Files that are no Python say so when they are run.
    """
    wanted = dict[str, str]()
    for file in sorted((case / framework).glob("*.py")):
        with suppress(SyntaxError, ValueError, RecursionError, OSError):
            wanted |= _packages(ast.parse(file.read_bytes()).body)
    own = {file.stem for folder in (case, case / framework) for file in folder.iterdir()} - {framework}
    return sorted(package for module, package in wanted.items() if module not in own)


def package_name(requirement: str) -> str:
    """The package of a line of requirements, "" of what is none."""
    match = _REQUIREMENT.match(requirement)
    return match[1] if match else ""


def _packages(nodes: Sequence[ast.AST]) -> dict[str, str]:
    """What statements import that is neither Python's own nor FlagPerf's: packages by pip's names, by their modules."""
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    packages = {module: package for package, module in MODULES.items()}
    modules = {name.partition(".")[0] for name in imported} - {"", *sys.stdlib_module_names, *FLAGPERF_MODULES}
    return {module: packages.get(module, module.replace("_", "-")) for module in modules}


def missing_requirements(requirements: Iterable[str]) -> Iterator[str]:
    """What this interpreter lacks, each as `tensorrt <10 (10.3.0 is here)`."""
    for line in requirements:
        match = _REQUIREMENT.match(line)
        if not match:
            continue
        name, wanted = match[1], match[2].strip()
        version = installed_version(name)
        if version is None:
            yield f"{name} {wanted}".strip()
        elif version and not version_satisfies(version, wanted):
            yield msg("cases.here", f"{name} {wanted} ({version} is here)")


def installed_version(name: str) -> str | None:
    """The version of a package, "" for a module without one, None where there is neither."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        module = MODULES.get(name.lower(), name.replace("-", "_"))
        return "" if "." not in module and importlib.util.find_spec(module) else None


def version_satisfies(version: str, wanted: str) -> bool:
    """Whether a version is within clauses such as `>=8,<10`; a clause that is not understood is left to pip."""
    return all(
        _holds(version, *match.groups()) for part in wanted.split(",") if (match := _CLAUSE.fullmatch(part.strip()))
    )


def _holds(version: str, operator: str, other: str, any_patch: str | None) -> bool:
    have, want = (_padded(text) for text in (version, other))
    length = len(other.split("."))
    same_start = _padded(version)[:length] == want[:length]
    return {
        "==": same_start if any_patch else have == want,
        "!=": not same_start if any_patch else have != want,
        ">=": have >= want,
        "<=": have <= want,
        "<": have < want,
        ">": have > want,
        "~=": have >= want and _padded(version)[: length - 1] == want[: length - 1],
    }[operator]


def _padded(version: str) -> tuple[tuple[int, str], ...]:
    parts = version_key(version.partition("+")[0])
    return (*parts, *[(0, "0")] * (8 - len(parts)))
