"""Agents of one host measure in turns: what another one measures at the same time would be in the numbers."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

LOCK_FOLDER_VARIABLE = "VISUALPROF_TURNS"
POLL_S = 0.2


@contextmanager
def hold_device(device: str, check: Callable[[], None], folder: Path | None = None) -> Generator[float]:
    """Hold the host's device while the block runs; gives the seconds for which another agent had it.

    Args:
        device: `cpu`, `cuda:0`. check: called while waiting; what it raises ends that.
        folder: of the locks; that of `VISUALPROF_TURNS`, or the system's for temporary files, which all users share.
    """
    place = folder or Path(os.environ.get(LOCK_FOLDER_VARIABLE) or tempfile.gettempdir())
    path = place / f"visualprof-{device_file_name(device)}.lock"
    handle = _opened(path)
    began = time.monotonic()
    try:
        while handle is not None and not _try_lock(handle):
            check()
            time.sleep(POLL_S)
        yield time.monotonic() - began
    finally:
        if handle is not None:
            os.close(handle)


def device_file_name(device: str) -> str:
    """`cuda:0` as a part of a file's name: by its place among all GPUs, where CUDA_VISIBLE_DEVICES shows only some."""
    kind, colon, number = device.partition(":")
    visible = [one.strip() for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if kind == "cuda" and number.isdecimal() and int(number) < len(visible):
        number = visible[int(number)] or number
    return kind + colon.replace(":", "_") + "".join(c if c.isalnum() else "_" for c in number)


def _opened(path: Path) -> int | None:
    """The file, made when it is not there; None where none can be: then nobody takes turns."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    for more in (0, os.O_CREAT):  # a sticky folder lets nobody open another user's file with O_CREAT
        try:
            return os.open(path, flags | more, 0o444)
        except OSError:  # noqa: PERF203 - two
            continue
    return None


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
