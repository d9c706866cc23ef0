"""Compare the packages that a case and its engine require with those of this interpreter. Nothing is imported."""

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

TRTEXEC = "trtexec"  # a command of TensorRT that no pip package provides
FLAGPERF_MODULES = (
    "tools",
    "loguru",
    "config",
    "inference_engine",
    "benchmarks",
)  # modules of FlagPerf, or replacements
# Attributes of engines and contexts that TensorRT 10 removed.
REMOVED_IN_TENSORRT_10 = set(
    """
    num_bindings get_binding_shape get_binding_dtype get_binding_index get_binding_name binding_is_input
    set_binding_shape execute_async_v2 execute_v2 max_batch_size max_workspace_size build_engine
    """.split()
)


def parse_requirements(text: str) -> list[str]:
    """Return the requirements of a pip file, without options such as --index-url and without comments."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("-")]


def engine_requirements(file: Path) -> tuple[str, ...]:
    """Return the packages that an engine's file imports. TensorRT calls in the file determine the version.

    Raises:
        TaskFailure: The file is not Python.
    """
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError) as error:
        raise TaskFailure(
            "input_error", f"{file.name}: {error}", msg("cases.python_3", "the file must be Python 3")
        ) from None
    packages = _packages(nodes)
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    if "tensorrt" in packages and names & REMOVED_IN_TENSORRT_10:
        packages["tensorrt"] = "tensorrt<10"
    needs_trtexec = any(TRTEXEC in text for text in texts) and not shutil.which(TRTEXEC)
    return (*sorted(packages.values()), *([TRTEXEC] if needs_trtexec else []))


def imported_packages(case: Path, framework: str) -> list[str]:
    """Return the packages that the code of a framework always imports. Optional and late imports are ignored.

    Args:
        case: The folder of the case's code. Files that are not Python fail when they run.
        framework: Name of the framework.
    """
    packages = dict[str, str]()
    for file in sorted((case / framework).glob("*.py")):
        with suppress(SyntaxError, ValueError, RecursionError, OSError):
            packages |= _packages(ast.parse(file.read_bytes()).body)
    own_modules = {file.stem for folder in (case, case / framework) for file in folder.iterdir()} - {framework}
    return sorted(package for module, package in packages.items() if module not in own_modules)


def package_name(requirement: str) -> str:
    """Return the package of a requirement line, "" if the line is not a requirement."""
    match = _REQUIREMENT.match(requirement)
    return match[1] if match else ""


def _packages(nodes: Sequence[ast.AST]) -> dict[str, str]:
    """Return the pip packages by module that statements import, without the standard library and FlagPerf."""
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    packages = {module: package for package, module in MODULES.items()}
    modules = {name.partition(".")[0] for name in imported} - {"", *sys.stdlib_module_names, *FLAGPERF_MODULES}
    return {module: packages.get(module, module.replace("_", "-")) for module in modules}


def missing_requirements(requirements: Iterable[str]) -> Iterator[str]:
    """Yield the missing requirements, each as `tensorrt <10 (10.3.0 is installed)`."""
    for line in requirements:
        match = _REQUIREMENT.match(line)
        if not match:
            continue
        name, wanted = match[1], match[2].strip()
        version = installed_version(name)
        if version is None:
            yield f"{name} {wanted}".strip()
        elif version and not version_satisfies(version, wanted):
            yield msg("cases.here", f"{name} {wanted} ({version} is installed)")


def installed_version(name: str) -> str | None:
    """Return the version of a package, "" for a module without a version, `None` if neither exists."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        module = MODULES.get(name.lower(), name.replace("-", "_"))
        return "" if "." not in module and importlib.util.find_spec(module) else None


def version_satisfies(version: str, wanted: str) -> bool:
    """Whether a version satisfies clauses such as `>=8,<10`. Clauses in an unknown form are left to pip."""
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
