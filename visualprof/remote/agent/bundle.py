"""Executable archives: the child's code for a runtime's interpreter, and the whole agent for another machine.

The archives are built from the installed sources, which may themselves be such an archive.
"""

from __future__ import annotations

import io
import zipfile
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from visualprof import __version__

if TYPE_CHECKING:
    from importlib.abc import Traversable

_FILE_DATE = (2020, 1, 1, 0, 0, 0)  # a fixed date, so that the same sources give the same bytes
_PACKAGE_SOURCE = f'"""The measuring part of visualprof."""\n\n__version__ = {__version__!r}\n'
_PLUGIN_PACKAGES = ("visualprof.remote.backends", "visualprof.remote.converters", "visualprof.remote.operators")
_CHILD_PACKAGES = (*_PLUGIN_PACKAGES, "visualprof.remote.cases", "visualprof.remote.child")
_EXCLUDED_FOLDERS = ("library",)  # the built-in cases are sent as separate bundles


@cache
def child_archive() -> bytes:
    """Build code.pyz: `python -I code.pyz WORK STAGE` runs one stage of a task."""
    return _build_archive("work/child_main.py", _CHILD_PACKAGES)


@cache
def probe_archive() -> bytes:
    """Build probe.pyz: `python -I probe.pyz [BACKEND]` describes the interpreter."""
    return _build_archive("machine/probe_main.py", _PLUGIN_PACKAGES)


@cache
def agent_archive() -> bytes:
    """Build agent.pyz: `python3 agent.pyz --server URL` runs the agent; its only requirement is psutil."""
    return b"#!/usr/bin/env python3\n" + _build_archive("agent_main.py", (*_CHILD_PACKAGES, "visualprof.remote.agent"))


def _build_archive(main: str, packages: tuple[str, ...]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "visualprof/__init__.py", _PACKAGE_SOURCE.encode())
        for name in ("messages.py", "peaks.py"):
            _add(archive, f"visualprof/{name}", files("visualprof").joinpath(name).read_bytes())
        remote = files("visualprof.remote")
        for name in ("__init__.py", "constraints.py", "processor.py", "recordings.py", "traced_module.py"):
            _add(archive, f"visualprof/remote/{name}", remote.joinpath(name).read_bytes())
        for package in ("visualprof.remote.protocol", *packages):
            _add_folder(archive, package.replace(".", "/"), files(package))
        _add(archive, "__main__.py", files("visualprof.remote.agent").joinpath(main).read_bytes())
    return buffer.getvalue()


def _add_folder(archive: zipfile.ZipFile, target: str, folder: Traversable) -> None:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name in _EXCLUDED_FOLDERS:
            continue
        if entry.is_dir():
            _add_folder(archive, f"{target}/{entry.name}", entry)
        elif entry.name.endswith(".py"):
            _add(archive, f"{target}/{entry.name}", entry.read_bytes())


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _FILE_DATE), data, zipfile.ZIP_DEFLATED)
