"""A lock per device, shared by all agents of a host: two measurements at the same time would disturb each other."""

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
    """Hold the host's device while the block runs; yield the seconds for which another agent held it.

    Args:
        device: Such as `cpu` or `cuda:0`.
        check: Called while waiting; an exception that it raises ends the wait.
        folder: Folder of the lock files; by default that of `VISUALPROF_TURNS`, or the system's temporary folder,
            which all users share.
    """
    lock_folder = folder or Path(os.environ.get(LOCK_FOLDER_VARIABLE) or tempfile.gettempdir())
    path = lock_folder / f"visualprof-{device_file_name(device)}.lock"
    handle = _open_lock_file(path)
    start_s = time.monotonic()
    try:
        while handle is not None and not _try_lock(handle):
            check()
            time.sleep(POLL_S)
        yield time.monotonic() - start_s
    finally:
        if handle is not None:
            os.close(handle)


def device_file_name(device: str) -> str:
    """Return a device as part of a file name.

    A GPU is named by its index among all GPUs, even if CUDA_VISIBLE_DEVICES shows only some.
    """
    kind, colon, number = device.partition(":")
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if kind == "cuda" and number.isdecimal() and int(number) < len(visible):
        number = visible[int(number)] or number
    return kind + colon.replace(":", "_") + "".join(c if c.isalnum() else "_" for c in number)


def _open_lock_file(path: Path) -> int | None:
    """Open the lock file, creating it if needed; return `None` if that fails, which turns locking off."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    for extra_flags in (0, os.O_CREAT):  # in a sticky folder O_CREAT fails for another user's file
        try:
            return os.open(path, flags | extra_flags, 0o444)
        except OSError:  # noqa: PERF203 - two rounds
            continue
    return None


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
