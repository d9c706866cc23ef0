"""Projections of embeddings, computed in child processes and cached."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from visualprof.messages import msg
from visualprof.reader.child import Failure, Limits, ReaderProcess
from visualprof.server.services import Services
from visualprof.views.measure.run_data.projection import Projection, ProjectionRequest, project

_LIMITS = Limits(
    600.0,
    2 << 30,
    0,
    msg("server.projection_hint", "choose PCA, or log fewer points"),
    work="compute",
)
_MAX_RUNNING = 2
_MAX_CACHED = 16
State = Literal["running", "ready", "failed", "canceled"]


@dataclass
class Job:
    """A projection that is computed.

    Attributes:
        state: The state.
        progress: Share that is done, 0..1.
        result: The positions, if ready.
        failure: The problem, if failed.
        is_canceled: Whether a user canceled it.
    """

    state: State = "running"
    progress: float = 0.0
    result: Projection | None = None
    failure: Failure | None = None
    is_canceled: threading.Event = field(default_factory=threading.Event)


class Projections:
    """Computes projections, at most `_MAX_RUNNING` at the same time."""

    def __init__(self, services: Services) -> None:
        del services
        self._jobs: OrderedDict[tuple[object, ...], Job] = OrderedDict()
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_MAX_RUNNING)

    def start(self, key: tuple[object, ...], path: str, request: Callable[[], ProjectionRequest]) -> Job:
        """Return the job with this key, or start it.

        Args:
            key: Changes with the vectors and the settings.
            path: File of the vectors, for messages.
            request: Return what to compute.
        """
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = Job()
                prepared = request()
                threading.Thread(target=self._run, args=(job, path, prepared), daemon=True).start()
            self._jobs.move_to_end(key)
            for old, other in list(self._jobs.items())[:-_MAX_CACHED]:
                if other.state != "running":
                    del self._jobs[old]
        return job

    def cancel(self, key: tuple[object, ...]) -> bool:
        """Cancel a job, and return whether it was running. The next `start` computes it again."""
        with self._lock:
            job = self._jobs.pop(key, None)
        if job is None or job.state != "running":
            return False
        job.is_canceled.set()
        return True

    def _run(self, job: Job, path: str, request: ProjectionRequest) -> None:
        def report(progress: float) -> None:
            job.progress = progress

        with self._slots:
            if job.is_canceled.is_set():
                job.state = "canceled"
                return
            child = ReaderProcess(project, _LIMITS)
            try:
                outcome = child.run(path, "embedding", report, job.is_canceled.is_set, request=request)
            finally:
                child.stop()
        if isinstance(outcome, Failure):
            job.failure, job.state = outcome, "failed"
        elif outcome is None:
            job.state = "canceled"
        else:
            job.result, job.state = outcome, "ready"
