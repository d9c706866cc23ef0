"""`profile`: record some steps with one line, as decorator and as `with`."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeVar

from visualprof.capture import session
from visualprof.capture.files import warn
from visualprof.capture.memory_history import MemoryHistory
from visualprof.capture.options import CaptureError, Options
from visualprof.capture.recorders import framework_of
from visualprof.capture.session import Recording
from visualprof.capture.topics import Topics

NEVER = 1 << 62
P = ParamSpec("P")
R = TypeVar("R")


def profile(
    logdir: str | os.PathLike[str],
    *,
    steps: int = 5,
    warmup: int = 2,
    repeat: int = 1,
    wait: int = 0,
    topics: Topics = Topics.ALL,
    memory: bool | Literal["snapshot"] = True,
    shapes: bool = True,
    stacks: bool = False,
    align_time: bool = True,
    show_operator_name: bool = True,
    monitor: bool = True,
    framework: str | None = None,
    model: Any = None,
    inputs: Any = None,
    max_files: int = 20,
    run: str = "",
) -> Profile:
    """Record some steps of training or inference into the folder that visualprof watches.

    As decorator, each call is a step unless the function calls `step`; as `with`, each `p.step()` ends a step. After
    `wait` and `warmup` steps without a profiler, `steps` are recorded, `repeat` times in all. If the loop ends earlier,
    the file is shorter.

    Args:
        logdir: Folder; the file is `<logdir>/<run>/<worker>.step<n>.<kind>.gz`.
        steps: Steps per file; 0 for all until the end.
        warmup: Steps that are not recorded before each file.
        wait: Further steps that are not recorded before each file.
        repeat: Number of files; 0 for any number.
        topics: Recorded topics, of `visualprof.capture`; an unsupported topic is a warning.
        memory: Record allocations; "snapshot" also writes a memory snapshot of PyTorch's allocator over all steps, and
            another when memory runs out.
        shapes: Record input shapes.
        stacks: Record Python stacks.
        align_time: Use dates as times, so that ranks and hosts share one clock; False: times start at 0.
        show_operator_name: False names operators by their types.
        monitor: Also sample CPU, memory, disk, power and GPUs of the machine.
        framework: torch, megengine, paddle, onnxruntime or openvino (default: the imported one).
        model: With `inputs`, also write the model's graph (`add_graph`). For ONNX Runtime and OpenVINO: the session or
            compiled model to record.
        inputs: Inputs for the graph.
        max_files: Files of this process in its run; the oldest are deleted.
        run: Folder below `logdir` (default: one per job, the same for all its ranks).

    Raises:
        CaptureBusy: On entry, if another recording of this process is not finished.
        CaptureError: On entry, if the framework is unknown or the folder cannot be written; or `memory` is unknown.
    """
    if memory not in (True, False, "snapshot"):
        raise CaptureError(f"memory={memory!r} is unknown", 'use True, False or "snapshot"')
    options = Options(
        logdir,
        steps=steps,
        topics=topics,
        memory=bool(memory),
        memory_snapshot=memory == "snapshot",
        shapes=shapes,
        stacks=stacks,
        align_time=align_time,
        show_operator_name=show_operator_name,
        monitor=monitor,
        framework=framework or "",
        model=model,
        inputs=inputs,
        max_files=max_files,
        run=run,
    )
    return Profile(options, wait + warmup, repeat)


class Profile:
    """Decorator and context manager that `profile` returns.

    Args:
        options: Options of each recording.
        pause: Steps before each recording.
        repeat: Number of recordings, 0 for any number.
    """

    def __init__(self, options: Options, pause: int, repeat: int) -> None:
        self._options = options
        self._pause = pause
        self._repeat = repeat
        self._recording: Recording | None = None
        self._made: list[Recording] = []
        self._step = 0
        self._next = NEVER  # next step at which there is something to do
        self._pid = 0
        self._depth = 0
        self._over = False
        self._history: MemoryHistory | None = None

    def __enter__(self) -> Profile:
        self._recording = session.arm(self._options)
        self._start_history(self._recording)
        self._made, self._step, self._pid, self._over = [], 0, os.getpid(), False
        self._next = self._pause
        if not self._pause:
            self._turn()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        recording, self._recording = self._recording, None
        history, self._history = self._history, None
        if history is not None and os.getpid() == self._pid:
            history.stop()
        self._next, self._over = NEVER, True
        if recording is None or os.getpid() != self._pid:
            return
        if (
            error is None and self._step and not recording.ended
        ):  # the last `step` started the recording, and no step followed
            recording.cancel()
            self._made = [other for other in self._made if other is not recording]
        else:
            recording.stop()
        if not self._made and error is None:
            warn(
                f"nothing was recorded: {self._step} of {self._pause} steps before the recording ended; "
                "call p.step() after each step, or give warmup=0"
            )

    def step(self) -> None:
        """End a step. Without a running recording, only count it."""
        self._step += 1
        if self._step >= self._next:
            self._turn()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function with each call as a step; if it calls `step`, all its calls form the recording."""
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise TypeError(f"profile: {function.__qualname__} returns before it has run; use `with` inside it")

        @functools.wraps(function)
        def call(*args: P.args, **keywords: P.kwargs) -> R:
            if self._over or self._depth:
                return function(*args, **keywords)
            if self._recording is None:
                self.__enter__()
            before = self._step
            self._depth = 1
            try:
                result = function(*args, **keywords)
            except BaseException as error:
                self.__exit__(type(error), error, error.__traceback__)
                raise
            finally:
                self._depth = 0
            if self._step == before:
                self.step()
            else:
                self.__exit__(None, None, None)
            return result

        return call

    def files(self) -> list[Path]:
        """Return the files of finished recordings; wait until they are written."""
        return [path for recording in self._made if (path := recording.wait())]

    def _start_history(self, recording: Recording) -> None:
        """Start the history of the allocator, if it is requested and possible."""
        if not self._options.memory_snapshot:
            return
        if framework_of(self._options) != "torch":
            warn("memory snapshots are recorded for PyTorch only")
            return
        history = MemoryHistory(recording.folder, recording.worker.name)
        self._history = history if history.start() else None

    def _turn(self) -> None:
        """Start a recording, continue it, or arm the next one."""
        if (
            os.getpid() != self._pid or self._recording is None
        ):  # a forked worker has the parent's recording but not its profiler
            self._next = NEVER
        elif self._recording not in self._made:
            self._made.append(self._recording)
            self._recording.start(self._step)
            self._next = self._step + 1
        elif not self._recording.step():
            self._schedule_next()

    def _schedule_next(self) -> None:
        """Schedule the next recording after one has ended, if any."""
        if len(self._made) == self._repeat:
            self._recording, self._next, self._over = None, NEVER, True
            return
        self._recording = session.arm(self._options)
        self._next = self._step + self._pause
        if not self._pause:
            self._turn()
