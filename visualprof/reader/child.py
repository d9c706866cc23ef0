"""Read files, or compute from them, in a child process that may crash, hang or run out of memory."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, Generic, Literal, TypeVar

import msgspec

from visualprof.errors import EmptyFile, FormatError, UnknownFormat, VisualprofError
from visualprof.log_lines import configure_logging
from visualprof.messages import msg
from visualprof.reader.allocator import keep_freed_memory, trim_heap
from visualprof.reader.processors import share_processors
from visualprof.reader.source import Progress, Source

_log = logging.getLogger(__name__)

_PROGRESS_INTERVAL_S = 0.1
_POLL_INTERVAL_S = 0.1
TIMEOUT = "Timeout"  # kind of the failure of a task that took too long
# A child with a higher memory peak is replaced after its job, because the allocator would keep most of the memory.
_HEAVY_BYTES = 512 * 1024**2

_EXPANSION_HINT = msg(
    "reader.content_multiplies_while_read",
    "its content expands while it is read: simplify the model and export it again",
)


class Slots:
    """Limits how many calls of `run_in_child` run and wait at the same time.

    Args:
        running: Calls that run at the same time, each in its own process.
        waiting: Threads that may wait for a running call to end.
    """

    def __init__(self, running: int, waiting: int) -> None:
        self.count = running + waiting
        self.admission, self.running = BoundedSemaphore(self.count), BoundedSemaphore(running)


_MODEL_SLOTS = Slots(2, 6)  # each model may need several GiB

Result = TypeVar("Result")
Task = Callable[[Any, Progress], Result]


class Limits(msgspec.Struct, frozen=True):
    """Resources that reading one file may use. Profiles have no limits: they are recordings of any size.

    Attributes:
        timeout_s: Wall-clock time.
        base_bytes: Memory beyond what the process used before.
        bytes_per_byte: Additional memory for each byte of the file.
        hint: What to do about a file that exceeds the limits.
        work: Whether the task reads the file, or computes something from a file that was read.
    """

    timeout_s: float
    base_bytes: int
    bytes_per_byte: int
    hint: str = _EXPANSION_HINT
    work: Literal["read", "compute"] = "read"

    def exceeded_time(self, name: str) -> Failure:
        """Return the failure of a task that took too long."""
        if self.work == "compute":
            text = msg("reader.computing_takes_over_s", f"{name}: computing this takes over {self.timeout_s:g} s")
        else:
            text = msg("reader.reading_takes_over_s", f"{name}: reading it takes over {self.timeout_s:g} s")
        return Failure(text, self.hint, kind=TIMEOUT)

    def exceeded_memory(self, name: str) -> Failure:
        """Return the failure of a task that needed too much memory."""
        if self.work == "compute":
            text = msg("reader.computing_takes_too_much", f"{name}: computing this takes too much memory")
        else:
            text = msg("reader.reading_takes_too_much", f"{name}: reading it takes too much memory")
        return Failure(text, self.hint, kind="MemoryError")


# A model is read, decoded, and copied for shape inference.
MODEL_LIMITS = Limits(60.0, 1 << 30, 4)


_DOCS_PAGES = {error.__name__: error.docs_page for error in (FormatError, UnknownFormat, EmptyFile)}


class Failure(msgspec.Struct, frozen=True):
    """Why a file could not be read.

    Attributes:
        error: What went wrong, as in `VisualprofError`.
        hint: What to do about it.
        status: The HTTP status, as in `VisualprofError`.
        kind: The name of the exception class, if known.
    """

    error: str
    hint: str
    status: int = 422
    kind: str = ""

    @property
    def docs_page(self) -> str:
        """Return the page that explains the exception, or "" if the reader was stopped."""
        return _DOCS_PAGES.get(self.kind, "")


class ReadFailed(FormatError):
    """A `Failure` as an exception, with its status."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error, failure.hint)
        self.status = failure.status
        self.docs_page = failure.docs_page


class ReaderProcess(Generic[Result]):
    """A child process and the pipe to it.

    Args:
        task: Function of a path; must be picklable.
        limits: Resources that one file may use.

    Attributes:
        heavy: The last job left the process with too much memory, so the process should be replaced.
    """

    def __init__(self, task: Task[Result], limits: Limits | None = None) -> None:
        context = get_context("spawn")
        self._limits = limits
        self._pipe, child_pipe = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=_child_main, args=(child_pipe, pickle.dumps(task), limits), daemon=True
        )
        self.heavy = False
        self._process.start()
        child_pipe.close()

    def is_alive(self) -> bool:
        """Return whether the process can run another job."""
        return self._process.is_alive()

    def run(
        self,
        path: str,
        name: str,
        report_progress: Callable[[float], None],
        is_cancelled: Callable[[], bool],
        readers: int = 1,
        request: object = None,
    ) -> Result | Failure | None:
        """Read one file and return the result, or `None` if the job was canceled.

        Args:
            path: The file.
            name: The file's name in messages.
            report_progress: Called with a fraction from 0 to 1.
            is_cancelled: Polled while the job runs.
            readers: The number of processes that read files at the same time; they share the processors.
            request: Input of the task (default: the path); must be picklable.
        """
        deadline = time.monotonic() + self._limits.timeout_s if self._limits else None
        try:
            self._pipe.send((path, name, readers, request))
            while not is_cancelled():
                if self._pipe.poll(_POLL_INTERVAL_S):
                    message: Any = self._pipe.recv()
                    if not isinstance(message, float):
                        outcome, self.heavy = message
                        return outcome
                    report_progress(message)
                elif deadline and self._limits and time.monotonic() > deadline:
                    self.stop()
                    return self._limits.exceeded_time(name)
            return None
        except (EOFError, OSError):
            return self._describe_death(name)

    def _describe_death(self, name: str) -> Failure:
        """Return why the process ended, by its exit code."""
        self._process.join(timeout=5)
        code = self._process.exitcode
        ending, hint = (
            msg("reader.ended_code", f"ended with code {code}"),
            msg("reader.log_says_more", "the log says more"),
        )
        if code is not None and code < 0:
            cause = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            ending, hint = (
                msg("reader.ended", f"was ended by {cause}"),
                msg("reader.defect_reader_library", "this is a defect of the reader or of a library"),
            )
            if self._limits:
                hint = msg(
                    "reader.file_damaged_made_needs", "the file is damaged or made to do this, or needs too much memory"
                )
            elif cause == "SIGKILL":
                hint = msg("reader.probably_ran_out_memory", "it probably ran out of memory")
        status = 422 if self._limits else 500
        return Failure(
            msg("reader.process_read", f"{name}: the process that read it {ending}"), hint, status, "ProcessDied"
        )

    def stop(self) -> None:
        """Kill the process."""
        self._pipe.close()
        self._process.kill()
        self._process.join(timeout=5)


def run_in_child(
    task: Task[Result],
    path: str | Path,
    name: str = "",
    limits: Limits = MODEL_LIMITS,
    slots: Slots = _MODEL_SLOTS,
) -> Result:
    """Run a task on a file in a new process and return the result.

    Args:
        task: Function of a path; must be picklable.
        path: The file.
        name: The file's name in messages, if it differs from the path's.
        limits: Resources that the task may use.
        slots: Limits how many calls run and wait at the same time.

    Raises:
        ReadFailed: The file cannot be read or exceeds the limits, the process died, or too many other calls wait.
    """
    name = name or Path(path).name
    if not slots.admission.acquire(blocking=False):
        raise ReadFailed(
            Failure(
                msg(
                    "reader.other_files_being_read",
                    f"{name}: {slots.count} other files are being read",
                ),
                msg("reader.try_again_moment", "try again in a moment"),
                503,
            )
        )
    try:
        with slots.running:
            child = ReaderProcess(task, limits)
            try:
                outcome = child.run(os.fspath(path), name, lambda _: None, lambda: False)
            finally:
                child.stop()
    finally:
        slots.admission.release()
    if isinstance(outcome, Failure):
        raise ReadFailed(outcome)
    assert outcome is not None  # nothing cancels this job
    return outcome


def _child_main(pipe: Connection, pickled: bytes, limits: Limits | None) -> None:
    """Run the loop of a child process: receive paths, send progress and outcomes.

    Args:
        pipe: Connection to the parent.
        pickled: The pickled task; unpickling it imports numpy.
        limits: Resources that one file may use.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    task: Task[Any] = pickle.loads(pickled)
    if limits and limits.work == "compute":
        keep_freed_memory()
    configure_logging()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then stops the children
    if hasattr(os, "nice"):
        os.nice(5)  # the server and the training job take precedence
    try:
        while True:
            path, name, readers, request = pipe.recv()
            share_processors(readers)
            outcome = read_or_fail(path, name, task, _throttle(pipe), limits, request)
            pipe.send((outcome, _peak_bytes() > _HEAVY_BYTES))
            del outcome
            trim_heap()  # until the next file
    except (EOFError, OSError):  # the parent has exited
        return


def read_or_fail(
    path: str,
    name: str,
    task: Task[Result],
    progress: Progress,
    limits: Limits | None = None,
    request: object = None,
) -> Result | Failure:
    """Run a task on a file, or on a request about it, and return its result, or a `Failure`."""
    try:
        if limits:
            _limit_memory(limits.base_bytes + limits.bytes_per_byte * Source(path).size)
        return task(path if request is None else request, progress)
    except VisualprofError as error:
        return Failure(error.error.replace(Path(path).name, name), error.hint, error.status, type(error).__name__)
    except MemoryError:
        if limits:
            return limits.exceeded_memory(name)
        hint = msg("reader.close_other_programs_take", "close other programs or take a shorter profile")
        return Failure(
            msg("reader.not_enough_memory_read", f"{name}: not enough memory to read it"), hint, 500, "MemoryError"
        )
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - one file must not end the process that reads the next one
        _log.exception("reading %s", path)
        reason = f"{type(error).__name__}: {error}".replace(path, name)[:500]
        text = msg("reader.reader_failed", f"{name}: the reader failed ({reason})")
        return Failure(text, msg("reader.please_report_file", "please report it with the file"), 500)


def _limit_memory(size: int) -> None:
    """Limit the address space, on Linux only, where the limit is enforced. It is raised again for the next file."""
    try:
        import resource
    except ImportError:
        return
    try:  # libraries reserve address space in proportion to the number of processors
        size += int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size if hard < 0 else min(size, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _throttle(pipe: Connection) -> Progress:
    """Return a progress callback that sends at most one value per `_PROGRESS_INTERVAL_S`."""
    last_report_s = 0.0

    def report(fraction: float) -> None:
        nonlocal last_report_s
        now = time.monotonic()
        if now - last_report_s >= _PROGRESS_INTERVAL_S:
            last_report_s = now
            pipe.send(float(min(max(fraction, 0.0), 1.0)))

    return report


def _peak_bytes() -> int:
    """Return the peak memory of this process in bytes, 0 if unknown.

    On Linux only /proc is used. `getrusage` of a forked process starts with the peak of its parent, so a server of 600
    MiB would replace its children after every file.
    """
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
    try:
        import resource
    except ImportError:  # Windows: children are never replaced for their memory
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
