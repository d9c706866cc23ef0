"""`listen`: a process that records when somebody asks for it (docs/adr/0051-request-recordings-through-files.md).

The thread that trains notes when each step ends and compares two numbers. All else is done by a thread beside it, so
that a log directory that stands still never stops a training; only a request makes the training read and write.
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
from visualprof.capture.monitor_thread import Beside, Steps, Watcher
from visualprof.capture.options import CaptureBusy, CaptureError, CaptureWarning, Options
from visualprof.capture.recorders import INFERENCE, TRAINING, framework_of, recorder_of
from visualprof.capture.requests import NEVER, Asked, Place
from visualprof.capture.topics import Topics

AGAIN = 100  # steps until a folder that failed is tried again
_listener: Listener | None = None
_ends: list[object] = []  # what ends it in a process of multiprocessing


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
    """Let this process be asked to record: by the page, by `visualprof record` or by SIGUSR2, all ranks together.

    A step ends with `capture.step()`; where that is never called, with each step of the first optimizer, or each run of
    a session. The process is seen from its first step on. A second call takes the place of the first.

    Args:
        logdir, topics, monitor, framework, model, max_files, run: as of `profile`.

    Raises:
        CaptureError: the log directory cannot be written.
    """
    options = Options(
        logdir, topics=topics, monitor=monitor, framework=framework or "", model=model, max_files=max_files, run=run
    )
    return Listener(options).start()


def step() -> None:
    """End a step of the process that listens; where none does, nothing."""
    if _listener is not None:
        _listener.step()


class Listener:
    """What `listen` gives. `stop` ends it."""

    def __init__(self, options: Options, watcher: Watcher | None = None) -> None:
        self._options = options
        self._watcher = watcher
        self._steps = Steps(self._act)
        self._asked: Asked | None = None
        self._beside: Beside | None = None
        self._acting = threading.Lock()
        self._driver = ""
        self._failed = False
        self._hooked_ns = 0
        self._undo: list[hooks.Undo] = []

    def start(self) -> Listener:
        """Make it that of this process.

        Raises: CaptureError: the log directory cannot be written.
        """
        global _listener
        _check(Path(self._options.logdir))
        if _listener:
            _listener.stop()
        _listener = self
        if not _ends and multiprocessing.parent_process():  # such a process ends without atexit
            _ends.append(multiprocessing.util.Finalize(None, _finish, exitpriority=1))
        _catch_signal()
        names = (self._options.framework,) if self._options.framework else TRAINING + INFERENCE
        self._undo.append(hooks.when_imported(names, self._imported))
        return self

    def stop(self) -> None:
        """End a recording that runs, waits for its file, says that the process ended."""
        self._unhook()
        self._steps.wake = NEVER
        if self._beside and self._asked and self._beside.stop():
            self._asked.end(self._steps.count)
            self._beside.last()
        self._beside = None

    def disown(self) -> None:
        """In a forked child: files and answers are the parent's."""
        self._steps.wake = NEVER
        self._beside = None

    def step(self) -> None:
        """End a step."""
        if self._undo:
            self._unhook()
        self._steps.end()

    def signalled(self) -> None:
        """Somebody sent SIGUSR2."""
        if self._beside:
            self._beside.signalled = True

    def _imported(self, framework: str) -> None:
        ended = functools.partial(self._hooked, framework)
        self._undo.append(hooks.watch(framework, ended, named=framework == self._options.framework))

    def _hooked(self, framework: str, subject: Any) -> None:
        """The first one only counts when a second one follows: the script may call `step` itself after it."""
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
        """What there is to do besides counting; whatever goes wrong with it, the training goes on."""
        if not self._acting.acquire(blocking=False):  # a step of another thread does it
            return
        try:
            self._steps.wake = self._do(count)
            if self._beside and self._beside.incoming:  # the thread beside may have woken this one in the meantime
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
        """Until which step nothing more is to be done."""
        if not self._beside:
            self._begin()
        if not self._beside or not self._asked:
            return count + (AGAIN if self._failed else 1)
        self._asked.step(count)
        if self._beside.incoming:
            asked, self._beside.incoming = self._beside.incoming, None
            self._asked.consider(asked, count)
        return self._asked.wake(count)

    def _begin(self) -> None:
        """Which worker of which run this is, is known when a step has ended: by then the ranks know each other."""
        try:
            place = _place(self._options, self._driver)
            asked = Asked(self._options, place)
            beside = Beside(self._steps, place, asked, self._watcher)
        except CaptureBusy:  # the script records by itself: once that is over
            return
        except OSError as error:  # of a folder that is shared it may pass
            if not self._failed:
                self._failed = True
                warn(f"the live state was not written: {error}")
            return
        self._asked, self._beside = asked, beside
        beside.start()


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
    """SIGUSR2 asks for a recording where the program does nothing else with it."""
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


def _forget() -> None:
    """In a forked child: the listener is the parent's."""
    global _listener
    if _listener:
        _listener.disown()
    _listener = None
    _ends.clear()


atexit.register(_finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
