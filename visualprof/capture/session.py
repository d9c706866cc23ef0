"""The one recording of this process: idle -> armed -> recording -> stopping -> dumping -> idle.

Nested profilers, profilers that are stopped twice, and exports of running profilers crash the process (SIGSEGV), so
this module rejects them. A forked child writes the file, because all frameworks hold the interpreter's lock while they
write: 3 s for 9 MB of MegEngine.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import multiprocessing.util
import os
import selectors
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from visualprof.capture import files
from visualprof.capture.files import RecordingStore, warn
from visualprof.capture.graph import add_graph
from visualprof.capture.options import CaptureBusy, CaptureError, Options
from visualprof.capture.recorders import Recorder, framework_of, recorder_of
from visualprof.capture.topics import Topics, names

if TYPE_CHECKING:
    from visualprof.capture.monitor import Monitor

DUMP_S = 120  # how long the process waits at exit for files that are being written


class State(Enum):
    """State of this process's recording."""

    IDLE = "idle"
    ARMED = "armed"
    RECORDING = "recording"
    STOPPING = "stopping"
    DUMPING = "dumping"


_lock = threading.RLock()
_current: Recording | None = None
_dumps: list[_Dump] = []
_ends: list[object] = []  # finalizers in a process of multiprocessing
_shelves: dict[Path, RecordingStore] = {}


def state() -> State:
    """Return the state of the unfinished recording, or idle."""
    return _current.state if _current else State.IDLE


def begin(options: Options, step: int = 0) -> Recording:
    """Start recording at once, on the training thread.

    Args:
        options: What to record.
        step: Number of the step that starts now.

    Raises:
        CaptureBusy: Another recording is not finished.
        CaptureError: The framework is unknown, or nothing can be written.
    """
    recording = arm(options)
    recording.start(step)
    return recording


def arm(options: Options) -> Recording:
    """Reserve the recording of this process, and check everything that can be checked before it starts."""
    global _current
    with _lock:
        if _current is not None:
            raise CaptureBusy(
                f"a recording of this process is {_current.state.value} already, into {_current.folder}",
                "end it first: one process records once at a time",
            )
        _settle_dumps(0)
        if not _ends and multiprocessing.parent_process():  # such a process exits without atexit
            _ends.append(multiprocessing.util.Finalize(None, _finish, exitpriority=0))
        _current = Recording(options)
        return _current


class Recording:
    """Recording of some steps of this process.

    Attributes:
        path: The file, once the recording has stopped.
        state: Its state.
    """

    def __init__(self, options: Options) -> None:
        self.state = State.ARMED
        self.path: Path | None = None
        name = framework_of(options)
        kind = recorder_of(name)
        _say_what_is_missing(name, kind, options)
        if kind.most_steps and not 0 < options.steps <= kind.most_steps:
            warn(f"{name} holds all it records in memory: {kind.most_steps} steps are recorded")
            options = replace(options, steps=kind.most_steps)
        self.options = options
        self._recorder = kind(options)
        self._facts = self._recorder.facts()
        self.worker = files.worker_of(self._facts)
        self.folder = Path(options.logdir) / (options.run or files.run_name(options.logdir, self.worker))
        self._shelf = _shelves.get(self.folder) or RecordingStore(self.folder, self.worker, options.max_files)
        _shelves[self.folder] = self._shelf
        self._monitor = _monitor(self) if options.monitor else None
        if options.model is not None and options.inputs is not None and self.worker.rank <= 0:
            add_graph(options.model, options.inputs, self.folder)
        self._first = self._step = 0
        self._thread = 0
        self._asked = False
        self._catches = False
        self._ended_by = 0

    def start(self, step: int = 0) -> None:
        """Start recording with this step, on the thread that will end it."""
        if self.state is not State.ARMED:
            raise CaptureError(f"the recording is {self.state.value}, not armed", "begin another one")
        self._first = self._step = step
        self._thread = threading.get_ident()
        if self._monitor:
            self._monitor.start()
        try:
            self._recorder.start()
            self._recorder.mark(step)
        except BaseException:
            self._release()
            raise
        self.state = State.RECORDING
        self._install_sigterm()

    @property
    def ended(self) -> int:
        """Number of steps that ended during the recording."""
        return self._step - self._first

    def step(self) -> bool:
        """End a step, on the thread that started; the last step ends the recording. Return False when it is over."""
        if self.state is not State.RECORDING:
            return False
        if threading.get_ident() != self._thread:
            raise CaptureError("a step ended on another thread than the recording began on", "step where you train")
        self._step += 1
        if self._asked or self.ended == self.options.steps:
            self._stop(whole=True)
            return False
        self._recorder.mark(self._step)
        return True

    def stop(self) -> None:
        """End the recording early; from another thread, with the next step. Idempotent."""
        if self.state is State.ARMED:
            self.cancel()
        elif self.state is State.RECORDING and threading.get_ident() != self._thread:
            self._asked = True
        elif self.state is State.RECORDING:
            self._stop(self._is_whole())

    def cancel(self) -> None:
        """End the recording without a file, on the thread that started."""
        if self.state is State.RECORDING:
            self.state = State.STOPPING
            self._recorder.stop(False)
            if self._monitor:
                self._monitor.stop()
        if self.state is not State.IDLE:
            self._release()

    def wait(self, timeout_s: float = DUMP_S) -> Path | None:
        """Return the file once it is written, or None if writing failed or takes longer."""
        _settle_dumps(timeout_s)
        return self.path if self.path and self.path.exists() else None

    @property
    def is_being_written(self) -> bool:
        """Whether a child is writing the file."""
        return any(dump.path == self.path for dump in _dumps)

    def _stop(self, whole: bool, background: bool = True) -> None:
        with _lock:
            if self.state is not State.RECORDING:
                return
            self.state = State.STOPPING
            try:
                replaced = self._recorder.stop(whole)
                if self._monitor:
                    self._monitor.stop()
                self.state = State.DUMPING
                self._dump(replaced, background)
            finally:
                self._release()

    def _is_whole(self) -> bool:
        """Whether the current span is a complete step; if `step()` was never called, the whole block is one."""
        return not self.ended

    def _dump(self, replaced: tuple[bytes, bytes] | None, background: bool) -> None:
        self.path = path = self._shelf.place(self._first, self._recorder.kind)
        for old in self._shelf.surplus():
            _settle_dumps(DUMP_S, old)  # otherwise its child would write the deleted file again
            old.unlink(missing_ok=True)
        facts = self._facts | {
            "rank": self.worker.rank,
            "world_size": self.worker.world_size,
            "host": self.worker.host,
            "pid": self.worker.pid,
            "steps": [self._first, max(self._first, self._step - 1)],
            "topics": names(self.options.topics & self._recorder.can),
            "align_time": self.options.align_time,
            "show_operator_name": self.options.show_operator_name,
        }
        facts |= self._recorder.facts()  # some recorders know their clock only now
        recorder = self._recorder

        def write() -> None:
            files.write(path, recorder.dump, facts, replaced)

        if background and recorder.forkable and (dump := _forked(write, path)):
            _dumps.append(dump)
            return
        try:
            write()
        except (OSError, RuntimeError, ValueError) as error:
            warn(f"{path} was not written: {error}")

    def _release(self) -> None:
        global _current
        self.state = State.IDLE
        self._recorder.close()
        del self._recorder  # Paddle allows only one live profiler
        with _lock:
            if _current is self:
                _current = None
        self._restore_sigterm()
        if self._ended_by:
            _settle_dumps(DUMP_S)
            os.kill(os.getpid(), self._ended_by)

    def detach(self) -> None:
        """Detach in a forked child: profiler and file belong to the parent."""
        self.state = State.IDLE
        self._restore_sigterm()

    def _install_sigterm(self) -> None:
        """Install a SIGTERM handler that writes the file first, unless the program handles this signal."""
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminated)
            self._catches = True

    def _restore_sigterm(self) -> None:
        if self._catches and signal.getsignal(signal.SIGTERM) == self._terminated:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._catches = False

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._ended_by = number  # the recording is ending already: finish it, then exit
        if self.state is State.RECORDING:
            self._stop(self._is_whole(), background=False)


def _monitor(recording: Recording) -> Monitor | None:
    if os.name != "posix":
        return None
    from visualprof.capture.monitor import Monitor  # imported only if wanted, because it searches for GPUs

    return Monitor(recording.folder, recording.worker)


def _say_what_is_missing(framework: str, kind: type[Recorder], options: Options) -> None:
    """Warn about options that the user named and the framework cannot record."""
    missing = names(options.topics & ~kind.can) if options.topics != Topics.ALL else []
    missing += ["Python stacks"] * (options.stacks and not kind.can_stack)
    if missing:
        warn(f"{framework} cannot record {', '.join(missing)}")


class _Dump:
    """Child process that writes a file and reports "" or an error."""

    def __init__(self, pid: int, answer: int, path: Path) -> None:
        self._pid, self._answer, self.path = pid, answer, path

    def has_ended(self, until: float) -> bool:
        """Wait for the child; return False if it takes longer."""
        with selectors.DefaultSelector() as selector:  # `select` fails with file descriptors from 1,024 on
            selector.register(self._answer, selectors.EVENT_READ)
            return bool(selector.select(max(0.0, until - time.monotonic())))

    def close(self) -> None:
        """Warn if the child failed."""
        with os.fdopen(self._answer, "rb") as pipe:
            output = pipe.read().decode("utf-8", "replace")
        with contextlib.suppress(ChildProcessError):  # the program itself waits for all children
            os.waitpid(self._pid, 0)
        if output != "written":
            warn(f"{self.path} was not written: {output or 'the process that wrote it ended'}")


def _forked(write: Callable[[], None], path: Path) -> _Dump | None:
    """Write in a forked child, which has a copy of the memory; return None if no child can be created."""
    if not hasattr(os, "fork"):
        return None
    answer, child_end = os.pipe()
    try:
        with warnings.catch_warnings():  # Python 3.12 and later warn about forking with threads; the child only writes
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    except OSError:  # not enough memory for a second process
        os.close(answer)
        os.close(child_end)
        return None
    if pid:
        os.close(child_end)
        return _Dump(pid, answer, path)
    _write_and_end(write, child_end)
    return None


def _write_and_end(write: Callable[[], None], pipe: int) -> None:
    """Run the child: write the file and exit without running the program's own exit handlers."""
    try:
        for number in (
            signal.SIGTERM,
            signal.SIGINT,
        ):  # a signal to the process group must not prevent writing the file
            signal.signal(number, signal.SIG_IGN)
        write()
        os.write(pipe, b"written")
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent tells it
        os.write(pipe, f"{type(error).__name__}: {error}".encode()[:2000])
    finally:
        os._exit(0)


def _settle_dumps(timeout_s: float, path: Path | None = None) -> None:
    """Wait for the files that are being written, or for one of them."""
    until = time.monotonic() + timeout_s
    for dump in [dump for dump in _dumps if path in (None, dump.path)]:
        if dump.has_ended(until):
            with _lock:  # the thread of `listen` waits too
                if dump in _dumps:
                    _dumps.remove(dump)
                    dump.close()


def _finish() -> None:
    """Stop the recording at exit: an unstopped profiler would crash the process without a file."""
    if _current:
        _current.stop()
    _settle_dumps(DUMP_S)
    if _dumps:
        sys.stderr.write(f"visualprof: {len(_dumps)} recordings are still being written\n")


def _reset_after_fork() -> None:
    """Reset the state in a forked child: the recording belongs to the parent."""
    global _current, _lock
    _lock = threading.RLock()
    if _current:
        _current.detach()
    _current = None
    _dumps.clear()
    _ends.clear()
    _shelves.clear()


atexit.register(_finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
