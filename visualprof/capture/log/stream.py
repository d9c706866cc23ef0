"""An event file that is written in the background."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from visualprof.capture.files import warn
from visualprof.capture.log.fields import record
from visualprof.capture.log.messages import event, file_head, session_start
from visualprof.capture.log.scalars import ScalarEncoder

INTERVAL_S = 0.5  # a killed process loses the values of this time
MAX_PENDING = 10_000  # values that wait; the next caller writes them
MAX_PENDING_SAMPLES = 64
MAX_UNWRITTEN_BYTES = 64 << 20  # records that wait for space on the disk


class Scalar(NamedTuple):
    """A scalar that waits to be written; without a step, it gets the next step of its tag."""

    tag: str
    number: float
    step: int | None
    wall_s: float


class Sample(NamedTuple):
    """Another value that waits to be written.

    Attributes:
        encode: Return the encoded values. Runs in the background.
        step: The step.
        wall_s: Unix time.
    """

    encode: Callable[[], Iterable[bytes]]
    step: int
    wall_s: float


class EventStream:
    """An event file. All methods may be called from several threads.

    A forked process continues in a new file, which is created with its first value.

    Args:
        name: Return a path for the file; called again in a forked process.
        purge_step: First step whose values in earlier files this file replaces.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, name: Callable[[], Path], purge_step: int | None = None) -> None:
        self._name, self._purge_step = name, purge_step
        self._pending: deque[Scalar | Sample] = deque()
        self._lock = threading.Lock()
        self._scalars = ScalarEncoder()
        self._last_steps: dict[str, int] = {}
        self._unwritten = b""
        self._descriptor = -1
        self.path = Path()
        self._is_closed: bool = False
        with self._lock:
            self._open()
        _add(self)

    def put(self, value: Scalar | Sample) -> None:
        """Add a value. It is written within `INTERVAL_S`."""
        self._pending.append(value)
        if self._is_closed:
            self._is_closed = False
            _add(self)
        if len(self._pending) > (MAX_PENDING if isinstance(value, Scalar) else MAX_PENDING_SAMPLES):
            self.flush()

    def last_step(self, tag: str) -> int | None:
        """Return the last step of a scalar, `None` without one."""
        self.flush()
        return self._last_steps.get(tag)

    def flush(self) -> None:
        """Write all values. A full disk is reported as a warning; the values stay for the next call."""
        with self._lock:
            if not self._pending and not self._unwritten:
                return
            records: list[bytes] = [self._unwritten]
            while self._pending:
                self._encode(self._pending.popleft(), records)
            self._write(b"".join(records))

    def close(self) -> None:
        """Write all values and close the file. A later value opens a file again."""
        _remove(self)
        self.flush()
        with self._lock:
            self._is_closed = True
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor = -1

    def forget(self) -> None:
        """Leave the file to the parent process, after a fork."""
        self._lock, self._is_closed = threading.Lock(), True
        self._pending.clear()
        self._unwritten = b""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _open(self) -> None:
        self.path = self._name()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(self.path, flags, 0o666)
        wall_s = time.time()
        head = record(file_head(wall_s))
        if self._purge_step is not None:
            head += record(session_start(wall_s, self._purge_step))
        try:
            self._append(head)
            self._purge_step = None
        except OSError:
            os.close(self._descriptor)
            self._descriptor = -1
            raise

    def _encode(self, value: Scalar | Sample, records: list[bytes]) -> None:
        if isinstance(value, Scalar):
            tag, number, step, wall_s = value
            if step is None:
                step = self._last_steps.get(tag, -1) + 1
            self._last_steps[tag] = step
            records.append(self._scalars.encode(tag, number, step, wall_s))
            return
        try:
            records.append(record(event(value.wall_s, value.step, list(value.encode()))))
        except Exception as error:  # noqa: BLE001 - the training must not end because of a value
            warn(f"a value was not logged: {error}")

    def _write(self, data: bytes) -> None:
        try:
            if self._descriptor < 0:
                self._open()
            self._append(data)
            self._unwritten = b""
        except OSError as error:
            self._unwritten = data if len(data) <= MAX_UNWRITTEN_BYTES else b""
            lost = "" if self._unwritten else " and were dropped"
            warn(f"values cannot be written to {self.path}{lost}: {error.strerror}")

    def _append(self, data: bytes) -> None:
        """Append all bytes, or nothing.

        Raises:
            OSError: The disk is full.
        """
        size = os.fstat(self._descriptor).st_size
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise


_streams: set[EventStream] = set()
_streams_lock = threading.Lock()
_thread: threading.Thread | None = None


def _add(stream: EventStream) -> None:
    """Write the values of a stream in the background."""
    global _thread
    with _streams_lock:
        _streams.add(stream)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_write_all, name="visualprof-log", daemon=True)
            _thread.start()


def _remove(stream: EventStream) -> None:
    with _streams_lock:
        _streams.discard(stream)


def _write_all() -> None:
    """Flush all streams twice a second, while there are any."""
    global _thread
    while True:
        time.sleep(INTERVAL_S)
        with _streams_lock:
            streams = list(_streams)
            if not streams:
                _thread = None
                return
        for stream in streams:
            stream.flush()


def _after_fork() -> None:
    """Use new files in a forked process, and start its thread with the first value."""
    global _thread, _streams_lock
    _streams_lock, _thread = threading.Lock(), None
    for stream in list(_streams):
        stream.forget()
    _streams.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
