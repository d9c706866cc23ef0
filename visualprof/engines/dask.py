"""Dask: a cluster on this machine, `dask`, or the scheduler at an address, `tcp://host:8786` or `tls://`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from visualprof.engines import ClusterExecutor, Engine, Result, WorkerLost, finish_future, missing_package
from visualprof.errors import VisualprofError

_CONNECT_TIMEOUT_S = 10


class _Task(Future[Result]):
    """A future whose task can be removed from the scheduler; a running thread of a worker cannot be stopped."""

    work: Any = None

    def cancel(self) -> bool:
        """Cancel the task, unless it is finished."""
        cancelled = super().cancel()
        if cancelled and self.work is not None:
            self.work.cancel()
        return cancelled


class DaskExecutor(ClusterExecutor):
    """Runs single-threaded tasks; Dask retries nothing."""

    def __init__(self, address: str) -> None:
        try:
            dask: Any = importlib.import_module("dask")
            self._distributed: Any = importlib.import_module("distributed")
        except ImportError as error:
            raise missing_package("Dask", "dask") from error
        dask.config.set({"distributed.scheduler.allowed-failures": 0})
        self._cluster: Any = None
        try:
            if not address:
                local = {"threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
                self._cluster = self._distributed.LocalCluster(**local)
            self._client: Any = self._distributed.Client(self._cluster or address, timeout=_CONNECT_TIMEOUT_S)
        except OSError as error:
            raise VisualprofError(f"no scheduler of Dask answers {address}: {error}", "is it up?") from error
        self.workers = max(sum(self._client.nthreads().values()), 1)

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Submit a call, as in `ClusterExecutor.submit`."""
        task = _Task[Result]()
        task.work = self._client.submit(fn, *args, **kwargs, pure=False, retries=0)
        task.work.add_done_callback(partial(self._on_done, task))
        return task

    def _on_done(self, task: _Task[Any], work: Any) -> None:
        error = work.exception() if work.status == "error" else None
        if work.status == "finished":
            finish_future(task, work.result())
        elif error is None or isinstance(error, self._distributed.KilledWorker):
            finish_future(task, error=WorkerLost("a worker of Dask ended in the midst of a task"))
        else:
            finish_future(task, error=error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect, as in `ClusterExecutor.shutdown`."""
        self._client.close()
        if self._cluster:
            self._cluster.close()


ENGINE = Engine("dask", ("tcp", "tls", "ucx"), lambda text: DaskExecutor("" if text == "dask" else text))
