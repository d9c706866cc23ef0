"""`listen`: let a process record on request (docs/adr/0051-request-recordings-through-files.md).

The training thread stores the end of each step and compares two numbers. A background thread does the rest, so that a
hanging log directory never stops a training. Only a request makes the training thread read and write.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import multiprocessing
import multiprocessing.util
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from visualprof.capture import files, hooks, live, session
from visualprof.capture.files import warn
from visualprof.capture.monitor_thread import BackgroundThread, Steps, Watcher
from visualprof.capture.options import CaptureBusy, CaptureError, CaptureWarning, Options
from visualprof.capture.recorders import INFERENCE, TRAINING, framework_of, recorder_of
from visualprof.capture.requests import NEVER, Place, RequestHandler
from visualprof.capture.topics import Topics

RETRY_STEPS = 100  # steps until a failed folder is retried
_listener: Listener | None = None
_ends: list[object] = []  # finalizers in a process of multiprocessing


def listen(
    logdir: str | os.PathLike[str],
    *,
    topics: Topics = Topics.ALL,
    monitor: bool = True,
    framework: str | None = None,
    model: Any = None,
    max_files: int = 20,
    run: str = "",
) -> Listener:
    """Let this process record on request: from the web UI, by `visualprof record` or by SIGUSR2, on all ranks together.

    A step ends with `capture.step()`, or, if that is never called, with each step of the first optimizer or each run of
    a
    session. The process is visible from its first step. A second call replaces the first.

    Args:
        logdir: Like `profile`, as are the other arguments.

    Raises:
        CaptureError: The log directory cannot be written.
    """
    options = Options(
        logdir, topics=topics, monitor=monitor, framework=framework or "", model=model, max_files=max_files, run=run
    )
    return Listener(options).start()


def step() -> None:
    """End a step of the listening process; do nothing if no process listens."""
    if _listener is not None:
        _listener.step()


class Listener:
    """Handle that `listen` returns; `stop` ends it."""

    def __init__(self, options: Options, watcher: Watcher | None = None) -> None:
        self._options = options
        self._watcher = watcher
        self._steps = Steps(self._act)
        self._asked: RequestHandler | None = None
        self._beside: BackgroundThread | None = None
        self._acting = threading.Lock()
        self._driver = ""
        self._failed = False
        self._hooked_ns = 0
        self._undo: list[hooks.Undo] = []

    def start(self) -> Listener:
        """Make this the listener of the process.

        Raises:
            CaptureError: The log directory cannot be written.
        """
        global _listener
        _check(Path(self._options.logdir))
        if _listener:
            _listener.stop()
        _listener = self
        if not _ends and multiprocessing.parent_process():  # such a process exits without atexit
            _ends.append(multiprocessing.util.Finalize(None, _finish, exitpriority=1))
        _catch_signal()
        names = (self._options.framework,) if self._options.framework else TRAINING + INFERENCE
        self._undo.append(hooks.when_imported(names, self._imported))
        return self

    def stop(self) -> None:
        """End a running recording, wait for its file, and report that the process ended."""
        self._unhook()
        self._steps.wake = NEVER
        if self._beside and self._asked and self._beside.stop():
            self._asked.end(self._steps.count)
            self._beside.last()
        self._beside = None

    def detach(self) -> None:
        """Detach in a forked child: files and answers belong to the parent."""
        self._steps.wake = NEVER
        self._beside = None

    def step(self) -> None:
        """End a step."""
        if self._undo:
            self._unhook()
        self._steps.end()

    def signalled(self) -> None:
        """Handle SIGUSR2."""
        if self._beside:
            self._beside.signalled = True

    def _imported(self, framework: str) -> None:
        ended = functools.partial(self._hooked, framework)
        self._undo.append(hooks.watch(framework, ended, named=framework == self._options.framework))

    def _hooked(self, framework: str, subject: Any) -> None:
        """Count a hooked step. The first counts only when a second follows: the script may call `step` itself."""
        if not self._driver:
            self._driver = framework
            if framework in INFERENCE and self._options.model is None:
                self._options = replace(self._options, model=subject)
            self._hooked_ns = time.perf_counter_ns()
        elif framework == self._driver:
            if not self._steps.count:
                self._steps.begin(self._hooked_ns)
            self._steps.end()

    def _unhook(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _act(self, count: int) -> None:
        """Do the work of this step, except counting it. If the work fails, the training continues."""
        if not self._acting.acquire(blocking=False):  # another thread is doing this
            return
        try:
            self._steps.wake = self._do(count)
            if self._beside and self._beside.incoming:  # the background thread may have woken this thread meanwhile
                self._steps.wake = 0
        except Exception as error:  # noqa: BLE001 - of a profiler or a file system, whatever it is
            self._steps.wake = NEVER
            with contextlib.suppress(CaptureWarning):
                if self._asked:
                    self._asked.give_up("failed", str(error), count)
                warn(str(error))
        finally:
            self._acting.release()

    def _do(self, count: int) -> int:
        """Return the step until which there is nothing to do."""
        if not self._beside:
            self._begin()
        if not self._beside or not self._asked:
            return count + (RETRY_STEPS if self._failed else 1)
        self._asked.step(count)
        if self._beside.incoming:
            asked, self._beside.incoming = self._beside.incoming, None
            self._asked.consider(asked, count)
        return self._asked.wake(count)

    def _begin(self) -> None:
        """Determine run and worker after the first step, when the ranks know each other."""
        try:
            place = _place(self._options, self._driver)
            asked = RequestHandler(self._options, place)
            background = BackgroundThread(self._steps, place, asked, self._watcher)
        except CaptureBusy:  # the script records itself: retry afterwards
            return
        except OSError as error:  # in a shared folder this may be temporary
            if not self._failed:
                self._failed = True
                warn(f"the live state was not written: {error}")
            return
        self._asked, self._beside = asked, background
        background.start()


def _place(options: Options, driver: str) -> Place:
    try:
        framework = framework_of(replace(options, framework=options.framework or driver))
        probe = session.arm(replace(options, framework=framework, monitor=False))
    except CaptureBusy:
        raise
    except CaptureError as error:
        worker = files.worker_of({})
        folder = Path(options.logdir) / (options.run or files.run_name(options.logdir, worker))
        place = Place(worker, folder, "", [], str(error))
    else:
        probe.cancel()
        kind = recorder_of(framework)
        memory = bool(kind.can & (Topics.MEMORY | Topics.TENSOR_LIFETIME))
        can = ["memory"] * memory + ["shapes"] + ["stacks"] * kind.can_stack
        place = Place(probe.worker, probe.folder, framework, can, "")
    (place.folder / live.FOLDER).mkdir(parents=True, exist_ok=True)
    return place


def _check(logdir: Path) -> None:
    try:
        logdir.mkdir(parents=True, exist_ok=True)
        writable = os.access(logdir, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise CaptureError(f"capture cannot write into {logdir}", "give another logdir")


def _catch_signal() -> None:
    """Let SIGUSR2 request a recording unless the program uses this signal."""
    number = getattr(signal, "SIGUSR2", None)
    main = threading.current_thread() is threading.main_thread()
    if number and main and signal.getsignal(number) is signal.SIG_DFL:
        signal.signal(number, _signalled)


def _signalled(number: int, frame: FrameType | None) -> None:
    del number, frame
    if _listener:
        _listener.signalled()


def _finish() -> None:
    global _listener
    listener, _listener = _listener, None
    if listener:
        listener.stop()


def _reset_after_fork() -> None:
    """Reset the state in a forked child: the listener belongs to the parent."""
    global _listener
    if _listener:
        _listener.detach()
    _listener = None
    _ends.clear()


atexit.register(_finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
