"""Which waiting task an agent may have, and on which of its devices."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, and_, false, or_

from visualprof.remote.protocol import Runtime, version_order
from visualprof.remote.queue.store.records import Agent, AnyRow
from visualprof.remote.queue.store.tables import tasks


def fits(agent: Agent, devices: Sequence[str]) -> ColumnElement[bool]:
    """Which tasks an agent may have: it may work for their owner, fits what they name, and a runtime has a free device.

    A private agent works for its own owner alone; without accounts that is everybody.
    """
    named = tasks.c.wanted_agent == agent.id
    who = or_(named, and_(tasks.c.wanted_agent == "", tasks.c.platform.in_(("", agent.capabilities.platform))))
    if not agent.public:
        who = and_(who, tasks.c.owner == agent.owner if agent.owner else tasks.c.owner.is_(None))
    runtimes = list[ColumnElement[bool]]()
    for each in agent.capabilities.runtimes:
        free = [device for device in devices if device in each.devices]
        if any(device.startswith("cuda") for device in free):
            free.append("cuda")  # any of them
        if free:
            runtimes.append(
                and_(tasks.c.backend == each.backend, tasks.c.version.in_(("", each.version)), tasks.c.device.in_(free))
            )
    return and_(who, or_(false(), *runtimes))


def device_for(agent: Agent, task: AnyRow, devices: Sequence[str]) -> str:
    """The free device that a task gets: the one that it names, or the first CUDA device of a runtime that serves it."""
    if task.device != "cuda":
        return task.device
    serving = {device for each in _serving(agent, task) for device in each.devices}
    return next(device for device in devices if device.startswith("cuda") and device in serving)


def version_for(agent: Agent, task: AnyRow, device: str) -> str:
    """The version of the runtime that a task gets on a device: the newest that serves it."""
    return max((each.version for each in _serving(agent, task) if device in each.devices), key=version_order)


def _serving(agent: Agent, task: AnyRow) -> list[Runtime]:
    runtimes = agent.capabilities.runtimes
    return [each for each in runtimes if each.backend == task.backend and task.version in ("", each.version)]
