"""Clusters that run tasks on many files in parallel, one file each with an `ENGINE`; found by listing this folder.

An engine is an executor of `concurrent.futures` with two additional guarantees. After the loss of a worker only its own
tasks fail, with `WorkerLost`; the engine never retries them. Where possible, `cancel` of a future also ends a running
task.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, TypeVar

from visualprof.errors import BadParameter, VisualprofError

Result = TypeVar("Result")


class WorkerLost(VisualprofError, docs_page="scale#data-flow"):
    """The process or machine that ran a task died before the task finished."""


class ClusterExecutor(Executor, ABC):
    """Runs functions on the workers of a cluster.

    Attributes:
        workers: How many tasks run at the same time.
    """

    workers: int

    @abstractmethod
    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """Call a function on a worker; function and arguments are pickled. The future raises `WorkerLost`."""

    @abstractmethod
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect from the cluster, and stop it if it was started for this executor."""


@dataclass(frozen=True)
class Engine:
    """An engine.

    Attributes:
        name: Its name.
        schemes: Schemes of its addresses.
        start: Returns an executor for an address, or for the engine's name, which means a cluster on this machine.
            Raises `VisualprofError` if a package is missing, or nothing answers at the address.
    """

    name: str
    schemes: tuple[str, ...]
    start: Callable[[str], ClusterExecutor]


def engines() -> dict[str, Engine]:
    """Return every engine by name."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {module.ENGINE.name: module.ENGINE for module in modules}


def start(text: str) -> ClusterExecutor:
    """Return the executor for a user's text: `ray`, `ray://host:10001`, `dask`, `tcp://host:8786`.

    Raises:
        BadParameter: There is no such engine.
        VisualprofError: As for `Engine.start`.
    """
    available = engines()
    scheme = text.partition("://")[0]
    engine = available.get(text) or next(
        (candidate for candidate in available.values() if "://" in text and scheme in candidate.schemes), None
    )
    if engine is None:
        raise BadParameter(f"there is no engine {text!r}", f"one of processes, {', '.join(available)}, or an address")
    return engine.start(text)


def missing_package(package: str, extra: str) -> VisualprofError:
    """Return the error of an engine whose package is not installed."""
    return VisualprofError(f"the engine {extra!r} needs {package}", f"pip install 'visualprof[{extra}]'")


def finish_future(future: Future[Any], result: object = None, error: BaseException | None = None) -> None:
    """Set the result of a future, unless it was canceled."""
    if not future.set_running_or_notify_cancel():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
