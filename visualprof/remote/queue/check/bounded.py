"""Reading a hostile file in a process of its own: it may crash, hang or grow without harm to the server."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from visualprof.errors import FormatError, VisualprofError

LIMIT_S = 120.0
BASE_BYTES = 4 << 30  # address space: numpy and onnx alone reserve about 1 GiB
TIMES = 4  # an ONNX model is read, decoded, and copied for the inference of shapes

AT_ONCE = threading.BoundedSemaphore(2)  # each may take several GiB

Result = TypeVar("Result")


def call(task: Callable[[Path, str], Result], path: Path, name: str, limit_s: float = LIMIT_S) -> Result:
    """`task(path, name)` in a child; task must be picklable.

    Raises: what the task raises of ours. FormatError: the child took too long, too much memory, or crashed.
    """
    with AT_ONCE:
        return _call(task, path, name, limit_s)


def _call(task: Callable[[Path, str], Result], path: Path, name: str, limit_s: float) -> Result:
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(theirs, task, path, name), daemon=True)
    child.start()
    theirs.close()
    try:
        if not ours.poll(limit_s):
            raise FormatError(f"{name}: reading it takes over {limit_s:.0f} s", "is it a model?")
        result: Any = ours.recv()
    except EOFError:
        raise _died(child, name) from None
    finally:
        child.kill()
        child.join()
        ours.close()
    if isinstance(result, VisualprofError):
        raise result
    return result


def _died(child: BaseProcess, name: str) -> FormatError:
    child.join(5)
    code = child.exitcode or 0
    how = signal.Signals(-code).name if -code in set(signal.Signals) else f"code {code}"
    return FormatError(f"{name}: the process that read it was ended by {how}", "the file is damaged or made to do this")


def _work(pipe: Connection, task: Callable[[Path, str], object], path: Path, name: str) -> None:
    """The life of the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends its children
    _limit(BASE_BYTES + TIMES * path.stat().st_size)
    try:
        pipe.send(task(path, name))
    except VisualprofError as error:
        pipe.send(error)
    except MemoryError:
        pipe.send(FormatError(f"{name}: reading it takes too much memory", "is it a model?"))


def _limit(size: int) -> None:
    """Bounds the address space, where the system can."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size if hard < 0 else min(size, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
