"""Tasks for the children of the pool's tests, in a module that spawned processes can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from visualprof.errors import FormatError
from visualprof.reader.logdir.summary import Summary
from visualprof.reader.processors import thread_count
from visualprof.reader.source import Progress


def by_name(path: str, progress: Progress) -> Summary:
    """Do what the file name says."""
    name = Path(path).name
    if name.startswith("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith("exits"):
        os._exit(3)
    if name.startswith("broken"):
        raise FormatError("broken: event 7 has no 'ts'", "is it truncated?")
    if name.startswith("bug"):
        raise RuntimeError("oops")
    if name.startswith("greedy"):
        raise MemoryError
    if name.startswith("threads"):
        time.sleep(0.2)
        return Summary(
            fingerprint=path,
            format="test",
            framework="test",
            rank=-1,
            events=thread_count(),
            duration_ns=0,
            steps=(),
            views=(),
            warnings=(),
            truncated=False,
        )
    if name.startswith("numpy"):
        return Summary(
            fingerprint=os.environ["OPENBLAS_NUM_THREADS"],
            format="test",
            framework="test",
            rank=-1,
            events=0,
            duration_ns=0,
            steps=(),
            views=(),
            warnings=(),
            truncated=False,
        )
    if name.startswith("slow"):
        progress(0.5)
        time.sleep(60)
    progress(0.25)
    return Summary(
        fingerprint=path,
        format="test",
        framework="test",
        rank=-1,
        events=os.getpid(),
        duration_ns=0,
        steps=(),
        views=(),
        warnings=(),
        truncated=False,
    )


def hostile(path: str, progress: Progress) -> str:
    """Do what the file name says, within the limits of a model."""
    name = Path(path).name
    if name.startswith("hangs"):
        time.sleep(60)
    if name.startswith("grows"):
        bytearray(3 << 30)
    if name.startswith("crashes"):
        os.kill(os.getpid(), signal.SIGSEGV)
    return str(os.getpid())
