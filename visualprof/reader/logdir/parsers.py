"""Where profiles are parsed: processes of this machine, or the workers of a cluster."""

from __future__ import annotations

from visualprof.reader.child import Result, Task
from visualprof.reader.logdir.pool import Parser, Pool

PROCESSES = "processes"  # of this machine


def open_parser(task: Task[Result], engine: str = PROCESSES, workers: int | None = None) -> Parser[Result]:
    """What parses files.

    Args:
        task: what is done with a path; must be picklable.
        engine: `processes`, or a cluster as `engines.start` names it.
        workers: processes at most; by default as `Pool` has it.

    Raises: VisualprofError: there is no such engine.
    """
    if engine == PROCESSES:
        return Pool(task, workers)
    from visualprof import engines
    from visualprof.reader.logdir.cluster_pool import ClusterPool

    return ClusterPool(engines.start(engine), task)
