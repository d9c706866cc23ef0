"""Clusters that work on many files at once: one file each, with an `ENGINE`; found by listing this folder.

An engine is an executor of `concurrent.futures` with two promises more. A worker that is lost fails its own tasks
alone, with `WorkerLost`, and the others go on; the engine never tries them again. `cancel` of a future also ends a task
that runs, where the engine can.
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


class WorkerLost(VisualprofError):
    """The process or the machine that ran a task ended before it did."""

    status = 500


class ClusterExecutor(Executor, ABC):
    """Runs functions on the workers of a cluster. workers: how many tasks run at once."""

    workers: int

    @abstractmethod
    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        """A call on some worker; its function and arguments are pickled. The future raises WorkerLost."""

    @abstractmethod
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster; ends it, if it was started for this executor."""


@dataclass(frozen=True)
class Engine:
    """What a file of this folder offers. schemes: of addresses that are its own.

    start: an executor, of an address, or of the engine's name for a cluster on this machine.
    Raises: VisualprofError: its package is missing, or nothing answers there.
    """

    name: str
    schemes: tuple[str, ...]
    start: Callable[[str], ClusterExecutor]


def engines() -> dict[str, Engine]:
    """Every engine by its name."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {module.ENGINE.name: module.ENGINE for module in modules}


def start(text: str) -> ClusterExecutor:
    """The executor that somebody names: `ray`, `ray://host:10001`, `dask`, `tcp://host:8786`.

    Raises: BadParameter: there is no such engine. VisualprofError: as `Engine.start`.
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
    """The error of an engine whose package is not installed."""
    return VisualprofError(f"the engine {extra!r} needs {package}", f"pip install 'visualprof[{extra}]'")


def finish_future(future: Future[Any], result: object = None, error: BaseException | None = None) -> None:
    """End a future that may have been cancelled meanwhile."""
    if not future.set_running_or_notify_cancel():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
