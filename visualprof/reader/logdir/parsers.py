"""Choose where profiles are parsed: processes of this machine, or workers of a cluster."""

from __future__ import annotations

from visualprof.reader.child import Result, Task
from visualprof.reader.logdir.pool import Parser, Pool

PROCESSES = "processes"  # the engine of local processes


def open_parser(task: Task[Result], engine: str = PROCESSES, workers: int | None = None) -> Parser[Result]:
    """Return a parser of files.

    Args:
        task: Function of a path; must be picklable.
        engine: `processes`, or a cluster as in `engines.start`.
        workers: Maximum number of processes (default: that of `Pool`).

    Raises:
        VisualprofError: There is no such engine.
    """
    if engine == PROCESSES:
        return Pool(task, workers)
    from visualprof import engines
    from visualprof.reader.logdir.cluster_pool import ClusterPool

    return ClusterPool(engines.start(engine), task)
