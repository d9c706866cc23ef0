"""Ray: a cluster on this machine, `ray`, or a running one, `ray://head:10001` or RAY_ADDRESS."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from visualprof.engines import ClusterExecutor, Engine, Result, WorkerLost, finish_future, missing_package
from visualprof.errors import VisualprofError

_OBJECT_STORE_BYTES = 100 * 1024**2  # results are small


class _Task(Future[Result]):
    """A future whose running task can be stopped; `reference` is Ray's reference, once known."""

    reference: Any = None

    def cancel(self) -> bool:
        """Cancel the task, unless it is finished."""
        cancelled = super().cancel()
        if cancelled and self.reference is not None:
            import_ray().cancel(self.reference, force=True)  # without `force` a call that waits in C continues
        return cancelled


class RayExecutor(ClusterExecutor):
    """Runs tasks of one processor each. Ray retries nothing, because visualprof's own queue decides about retries."""

    def __init__(self, address: str) -> None:
        self._ray = ray = import_ray()
        address = address or os.environ.get("RAY_ADDRESS", "")
        local = {} if address else {"include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
        try:
            ray.init(address or "local", log_to_driver=False, logging_level="ERROR", **local)
        except Exception as error:  # the type depends on what is missing
            hint = "is its head node up, and RAY_AUTH_TOKEN that cluster's?" if address else ""
            place_text = address or "on this machine"
            raise VisualprofError(f"no cluster of Ray {place_text}: {error}", hint) from error
        self.workers = max(int(ray.cluster_resources().get("CPU", 1)), 1)
        self._call: Any = ray.remote(num_cpus=1, max_retries=0)(_run_function)

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Submit a call, as in `ClusterExecutor.submit`."""
        task = _Task[Result]()
        task.reference = self._call.remote(fn, args, kwargs)
        task.reference.future().add_done_callback(partial(self._on_done, task))
        return task

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect, as in `ClusterExecutor.shutdown`."""
        self._ray.shutdown()

    def _on_done(self, task: _Task[Any], result: Future[Any]) -> None:
        error: Any = result.exception()
        if error is None:
            finish_future(task, result.result())
        elif isinstance(error, self._ray.exceptions.RayTaskError):
            finish_future(task, error=error.cause)
        else:
            finish_future(
                task, error=WorkerLost(f"a worker of Ray ended in the midst of a task: {type(error).__name__}")
            )


def import_ray() -> Any:
    """Return Ray's package.

    Its settings only take effect at import, so they are not changed if it was imported before.
    """
    if "ray" not in sys.modules:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Else anyone who reaches a port of the cluster could run code in it
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise missing_package("Ray", "ray") from error


def _run_function(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


ENGINE = Engine("ray", ("ray",), lambda text: RayExecutor("" if text == "ray" else text))
