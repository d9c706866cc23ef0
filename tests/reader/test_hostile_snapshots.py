"""Hostile memory snapshots: each is answered at once, in little memory, by an error that names the file."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.recordings import LOCAL_COPY
from visualprof.errors import VisualprofError
from visualprof.reader import native, read_trace
from visualprof.reader.formats.torch_snapshot import read_snapshot
from visualprof.reader.memory_snapshot.history import to_columns
from visualprof.reader.memory_snapshot.pickle_values import PickleError, decode

FOLDER = LOCAL_COPY / "traces" / "memory_snapshots" / "hostile"
FILES = sorted(path.name for path in FOLDER.glob("*"))
MAX_CPU_S = 0.1
MAX_BYTES = 50 << 20
pytestmark = [
    pytest.mark.skipif(not FILES, reason="shared samples are missing"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="measured in a forked process"),
]


def by_trace(path: Path) -> str:
    """Return the error of the reader of all formats."""
    try:
        read_trace(path)
    except VisualprofError as error:
        return error.error
    return ""


def by_snapshot(path: Path) -> str:
    """Return the error of the reader of snapshots, whatever the first bytes are."""
    try:
        read_snapshot(path.read_bytes())
    except PickleError as error:
        return f"{path.name}: {error}"
    return ""


def by_python(path: Path) -> str:
    """Return the error without the native library."""
    try:
        to_columns(decode(path.read_bytes()))
    except PickleError as error:
        return f"{path.name}: {error}"
    return ""


def _measure(pipe: Connection, read: Callable[[Path], str], path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    error = read(path)
    spent_s = time.process_time() - start
    pipe.send((error, spent_s, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10))


@pytest.mark.parametrize("read", [by_trace, by_snapshot, by_python])
@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_refused_in_little_time_and_memory(name: str, read: Callable[[Path], str]) -> None:
    native.library()  # loaded before the measurement, as in a running server
    receiver, sender = get_context("fork").Pipe(duplex=False)
    child = get_context("fork").Process(target=_measure, args=(sender, read, FOLDER / name))
    child.start()
    sender.close()
    error, spent_s, grown_bytes = receiver.recv()
    child.join()
    assert name in error
    assert spent_s < MAX_CPU_S
    assert grown_bytes < MAX_BYTES
