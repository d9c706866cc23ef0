"""Run functions of parsed traces: cheap ones in this process, costly ones in a pool of processes with limits.

A file can be made so that a view of it takes minutes. So whatever a server computes from a trace for a request goes
through `TraceTasks.run`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, TypeVar, cast

import msgspec

from visualprof import errors
from visualprof.clock import SYSTEM_CLOCK, Clock
from visualprof.errors import NotReady, VisualprofError
from visualprof.messages import msg
from visualprof.reader.cache import Cache
from visualprof.reader.child import Failure, Limits, ReadFailed
from visualprof.reader.logdir.open_traces import OpenTraces
from visualprof.reader.logdir.pool import Pool
from visualprof.reader.logdir.summary import file_fingerprint
from visualprof.reader.source import Progress
from visualprof.reader.trace.step_ranges import with_step_range

# A view of this cost takes about half a second (`summary.estimate_cost`).
MAX_COST = 500_000
LIMITS = Limits(
    60.0,
    2 << 30,
    16,
    hint=msg(
        "logdir.shorter_recording_or_command",
        "record fewer steps, or use the command `visualprof view`, which has no limits",
    ),
    work="compute",
)
_MAX_PROCESSES = 2
_MAX_TASKS, _MAX_OWNER_TASKS = 400, 50  # running or queued; of one user
_WAIT_S = 10.0  # a request waits for its result this long
_MAX_WAITING_REQUESTS = 8  # each occupies a thread of the server; the others ask again
_POLL_S = 0.25
_ABANDONED_S = 30.0  # a task for which no request asked for this long is canceled, and its result is forgotten
_FAILURE_S = 300.0  # a task that failed is not tried again for this long

Result = TypeVar("Result")


class StillComputing(NotReady):
    """The result is being computed. The response has the state and the progress for the web UI."""

    def __init__(self, name: str) -> None:
        super().__init__(
            msg("logdir.being_computed", f"{name} is being computed"),
            msg("logdir.ask_again_moment", "ask again in a moment"),
        )
        self.state, self.progress = "parsing", 0.0


class Order(msgspec.Struct, frozen=True):
    """A task of the pool: a function of a trace and its arguments.

    Attributes:
        fingerprint: Fingerprint of the trace.
        step_range: Pattern of the ranges to use as steps, "" for the steps of the file.
        function: Function of the trace and the arguments, in a module; so it can be pickled.
        arguments: Further arguments; picklable, and their `repr` identifies them.
    """

    fingerprint: str
    step_range: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    @property
    def key(self) -> str:
        """Key of the result."""
        place = self.function.__module__, self.function.__qualname__
        return repr((self.fingerprint, self.step_range, *place, self.arguments))


@dataclass
class _Run:
    """A task of the pool.

    Attributes:
        name: Name of the result in messages.
        owner: The user who asked first.
        asked: Monotonic time at which a request last asked for the result.
        ended: Monotonic time at which the task ended, 0 while it has not.
        outcome: The result in a tuple, or the failure; `None` while it has not ended.
    """

    name: str
    owner: Hashable
    asked: float
    done: threading.Event = field(default_factory=threading.Event)
    ended: float = 0.0
    outcome: tuple[Any] | Failure | None = None


class TraceTasks:
    """Runs functions of traces in a pool of processes.

    Args:
        cache: The cache in which the traces are stored. `None`: there is no pool, and callers run the functions.
        limits: Limits of one task.
        clock: Measures how long results and requests are remembered.
    """

    def __init__(self, cache: Cache | None = None, limits: Limits = LIMITS, clock: Clock = SYSTEM_CLOCK) -> None:
        self._cache, self._clock = cache, clock
        self._runs: dict[str, _Run] = {}
        self._waiting_requests = 0
        self._sequence = count()
        self._lock = threading.Lock()
        self._pool: Pool[tuple[Any]] | None = None
        if cache:
            task = partial(run_order, cache=cache)
            self._pool = Pool(task, _MAX_PROCESSES, limits, is_abandoned=self._drop_if_abandoned)
            self._pool.start(self)

    def close(self) -> None:
        """Stop all tasks. Waiting requests get an answer that makes them ask again."""
        if self._pool:
            self._pool.close()
        with self._lock:
            for run in self._runs.values():
                run.done.set()

    @property
    def uses_pool(self) -> bool:
        """Whether there is a pool."""
        return self._pool is not None

    def run(
        self,
        name: str,
        fingerprint: str,
        function: Callable[..., Result],
        *arguments: Any,
        step_range: str = "",
        owner: Hashable = None,
        is_disconnected: Callable[[], bool] | None = None,
        wait: bool = True,
    ) -> Result:
        """Return the result of a function of a trace.

        Args:
            name: Name of the result in messages.
            fingerprint: Fingerprint of the trace.
            function: Function of the trace and the arguments, in a module.
            *arguments: Further arguments; picklable, and their `repr` identifies them.
            step_range: Pattern of the ranges to use as steps, "" for the steps of the file.
            owner: The user who asks. Users with fewer tasks go first.
            is_disconnected: Whether the client no longer waits for the result.
            wait: Wait for the result for some seconds.

        Raises:
            StillComputing: Ask again.
            VisualprofError: The error of the function, or the task exceeded its limits.
        """
        run = self._start(name, Order(fingerprint, step_range, function, arguments), owner)
        if wait:
            self._wait(run, is_disconnected)
        outcome = run.outcome
        if outcome is None:
            raise StillComputing(name)
        if isinstance(outcome, Failure):
            raise _failure_error(outcome)
        return cast("Result", outcome[0])

    def _start(self, name: str, order: Order, owner: Hashable) -> _Run:
        """Return the task with the same result, or queue a new one."""
        assert self._pool
        assert self._cache
        key, now = order.key, self._clock.monotonic()
        with self._lock:
            self._forget_old(now)
            if run := self._runs.get(key):
                run.asked = now
                return run
            unfinished = [run.owner for run in self._runs.values() if not run.ended]
            pending = unfinished.count(owner)
            if len(unfinished) >= _MAX_TASKS or pending >= _MAX_OWNER_TASKS:
                raise StillComputing(name)
            run = self._runs[key] = _Run(name, owner, now)
        place = (pending, next(self._sequence))
        path = self._cache.path(file_fingerprint(order.fingerprint)[0])
        self._pool.submit(key, path, 0, place, name=name, request=order)
        return run

    def _forget_old(self, now: float) -> None:
        """Forget results for which no request asked recently, and failures after some time."""
        for key, run in list(self._runs.items()):
            failed = isinstance(run.outcome, Failure)
            if run.ended and now - (run.ended if failed else run.asked) > (_FAILURE_S if failed else _ABANDONED_S):
                del self._runs[key]

    def _wait(self, run: _Run, is_disconnected: Callable[[], bool] | None) -> None:
        """Wait for the end of a task, unless too many requests wait or the client has disconnected."""
        with self._lock:
            may_wait = self._waiting_requests < _MAX_WAITING_REQUESTS
            self._waiting_requests += may_wait
        if not may_wait:
            return
        try:
            deadline = self._clock.monotonic() + _WAIT_S
            while not run.done.wait(_POLL_S) and self._clock.monotonic() < deadline:
                if is_disconnected and is_disconnected():
                    return
                run.asked = self._clock.monotonic()
        finally:
            with self._lock:
                self._waiting_requests -= 1

    def _drop_if_abandoned(self, key: str) -> bool:
        """Return whether no request asked for a task recently, and forget the task then."""
        with self._lock:
            run = self._runs.get(key)
            if run and self._clock.monotonic() - run.asked <= _ABANDONED_S:
                return False
            self._runs.pop(key, None)
            return True

    def on_progress(self, key: str, progress: float) -> None:
        """Ignore progress: views do not report any."""

    def on_finished(self, key: str, outcome: tuple[Any] | Failure) -> None:
        """Handle the end of a task of the pool."""
        with self._lock:
            run = self._runs.get(key)
            if run is None:
                return
            if isinstance(outcome, Failure) and outcome.status == NotReady.status:
                del self._runs[key]  # the trace was evicted from the cache, and is parsed again
            run.outcome, run.ended = outcome, self._clock.monotonic()
        run.done.set()


def _failure_error(failure: Failure) -> VisualprofError:
    """Return the error of a function that ran in the pool as the same exception as in this process."""
    kind = getattr(errors, failure.kind, None)
    if isinstance(kind, type) and issubclass(kind, VisualprofError):
        return kind(failure.error, failure.hint)
    return ReadFailed(failure)


_traces: OpenTraces | None = None  # of a process of the pool


def run_order(order: Order, progress: Progress, *, cache: Cache) -> tuple[Any]:
    """Compute a result, in a tuple; the task of a process of the pool.

    Raises:
        NotReady: The trace is not in the cache.
    """
    global _traces
    _traces = _traces or OpenTraces(cache)
    trace = _traces.get(order.fingerprint)
    if trace is None:
        raise NotReady(
            msg("logdir.file_being_read_again", "the file is being read again"),
            msg("logdir.ask_again_moment", "ask again in a moment"),
        )
    if order.step_range:
        trace = with_step_range(trace, order.step_range)
    return (order.function(trace, *order.arguments),)
