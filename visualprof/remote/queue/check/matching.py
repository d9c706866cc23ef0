"""Matching of specs and agents. `tasks.scheduling` has the same rule as a condition on the table of tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from visualprof.messages import msg
from visualprof.remote.protocol import Offer, Runtime, Spec, version_key
from visualprof.remote.queue.check.request_json import FieldError
from visualprof.remote.queue.store.records import Agent, AnyRow


def device_names(devices: Sequence[str]) -> list[str]:
    """Return the names by which a spec can request one of these devices; `cuda` is any CUDA device."""
    return [*devices, "cuda"] if any(device.startswith("cuda") for device in devices) else list(devices)


def matching_runtimes(runtimes: Sequence[Runtime], backend: str, version: str) -> list[Runtime]:
    """Return the runtimes of a backend with a version; "" is any version."""
    return [r for r in runtimes if r.backend == backend and version in ("", r.version)]


def missing_requirements(spec: Spec, agent: Agent) -> Iterator[FieldError]:
    """Yield what an agent lacks for a spec, by the spec's field; nothing if the agent can run it."""
    has = agent.capabilities
    versions = matching_runtimes(has.runtimes, spec.backend, "")
    fitting = matching_runtimes(has.runtimes, spec.backend, spec.version)
    if spec.platform not in ("", *has.platforms):
        yield FieldError(
            "platform", msg("queue.not", f"{agent.name} is {' and '.join(has.platforms)}, not {spec.platform}")
        )
    if not versions:
        available = ", ".join(sorted({r.backend for r in has.runtimes})) or "none"
        yield FieldError(
            "backend",
            msg("queue.no_3", f"{agent.name} has no {spec.backend}"),
            msg("queue.runtimes", f"its runtimes: {available}"),
        )
    elif not fitting:
        available = ", ".join(sorted({r.version for r in versions}))
        yield FieldError(
            "version",
            msg("queue.no_2", f"{agent.name} has no {spec.backend} {spec.version}"),
            msg("queue.it_has", f"it has {available}"),
        )
    elif not any(spec.device in device_names(r.devices) for r in fitting):
        available = ", ".join(sorted({d for r in fitting for d in r.devices}))
        yield FieldError(
            "device",
            msg("queue.no", f"{spec.backend} of {agent.name} has no {spec.device}"),
            msg("queue.it_has", f"it has {available}"),
        )


def eligible_agents(spec: Spec, agents: Sequence[Agent]) -> list[Agent]:
    """Return the agents that can run a spec and accept tasks."""
    working = [a for a in agents if a.standing == "works"]
    return [a for a in working if spec.agent in ("", a.id) and not any(missing_requirements(spec, a))]


@dataclass(frozen=True)
class FreeCapacity:
    """The free devices on which an agent accepts tasks.

    Attributes:
        devices: Free devices, usable by all runtimes that support them.
        begun: Devices by job, for started jobs with specs that take turns on one device.
        fleet: Offers of the free nodes of a fleet.
    """

    devices: Sequence[str]
    begun: Mapping[str, str] = field(default_factory=dict[str, str])
    fleet: Sequence[Offer] = ()

    def offers(self, agent: Agent, job: str = "") -> list[Offer]:
        """Return the ways in which the agent can run a task of the job; devices that come first are preferred."""
        devices = [*([self.begun[job]] if job in self.begun else []), *self.devices]
        return [*_offers(agent, devices), *self.fleet]


def _offers(agent: Agent, devices: Sequence[str]) -> list[Offer]:
    has = agent.capabilities
    return [Offer(has.platform, r.backend, r.version, d) for d in devices for r in has.runtimes if d in r.devices]


def choose_device(agent: Agent, task: AnyRow, free: FreeCapacity) -> tuple[str, str]:
    """Return the device for a task, and the newest version of a runtime for it. `cuda` gets the first CUDA device."""
    fitting = [
        offer
        for offer in free.offers(agent, task.job)
        if offer.backend == task.backend
        and task.version in ("", offer.version)
        and (task.platform in ("", offer.platform) or (task.wanted_agent and not free.fleet))
        and task.device in device_names([offer.device])
    ]
    device = fitting[0].device
    return device, max((offer.version for offer in fitting if offer.device == device), key=version_key)
