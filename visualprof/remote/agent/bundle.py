"""Archives that Python runs: the child's code for a runtime's interpreter, and the whole agent for another machine.

They are made from the sources as they are installed, which may be such an archive itself.
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

_DATE = (2020, 1, 1, 0, 0, 0)  # the same sources give the same bytes
_ROOT = f'"""The part of visualprof that measures."""\n\n__version__ = {__version__!r}\n'
_OFFERS = ("visualprof.remote.backends", "visualprof.remote.converters", "visualprof.remote.operators")
_WORKS = (*_OFFERS, "visualprof.remote.cases", "visualprof.remote.child")
_LEFT_OUT = ("library",)  # cases that ship travel as bundles of their own


@cache
def child_archive() -> bytes:
    """code.pyz: `python -I code.pyz WORK STAGE` runs a stage of a task."""
    return _archive("work/child_main.py", _WORKS)


@cache
def probe_archive() -> bytes:
    """probe.pyz: `python -I probe.pyz [BACKEND]` says what the interpreter has."""
    return _archive("machine/probe_main.py", _OFFERS)


@cache
def agent_archive() -> bytes:
    """agent.pyz: `python3 agent.pyz --server URL` is the agent, with psutil as its only requirement."""
    return b"#!/usr/bin/env python3\n" + _archive("agent_main.py", (*_WORKS, "visualprof.remote.agent"))


def _archive(main: str, packages: tuple[str, ...]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "visualprof/__init__.py", _ROOT.encode())
        for name in ("messages.py", "peaks.py"):
            _add(archive, f"visualprof/{name}", files("visualprof").joinpath(name).read_bytes())
        remote = files("visualprof.remote")
        for name in ("__init__.py", "constraints.py", "processor.py", "recordings.py", "traced_module.py"):
            _add(archive, f"visualprof/remote/{name}", remote.joinpath(name).read_bytes())
        for package in ("visualprof.remote.protocol", *packages):
            _add_folder(archive, package.replace(".", "/"), files(package))
        _add(archive, "__main__.py", files("visualprof.remote.agent").joinpath(main).read_bytes())
    return buffer.getvalue()


def _add_folder(archive: zipfile.ZipFile, path: str, folder: Traversable) -> None:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name in _LEFT_OUT:
            continue
        if entry.is_dir():
            _add_folder(archive, f"{path}/{entry.name}", entry)
        elif entry.name.endswith(".py"):
            _add(archive, f"{path}/{entry.name}", entry.read_bytes())


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
