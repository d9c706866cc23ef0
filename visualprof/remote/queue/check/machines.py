"""Can the specs of a job be run: by the backend that they name, and by a machine that is registered?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from visualprof.remote.backends import Backend, all_backends
from visualprof.remote.protocol import Capabilities, Runtime, Spec
from visualprof.remote.queue.check.form import FieldError, nearest
from visualprof.remote.queue.check.inspect import InspectedModel


class Agent(Protocol):
    """A registered machine."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What it says of itself."""
        ...


def backend_errors(specs: Sequence[Spec], model: InspectedModel | None) -> Iterator[FieldError]:
    """Backends that are not known or do not load the model, and options they do not have."""
    known = {b.name: b for b in all_backends()}
    for i, spec in enumerate(specs):
        backend = known.get(spec.backend)
        if backend is None:
            yield FieldError(
                f"specs[{i}].backend", f"there is no backend {spec.backend[:80]!r}", nearest(spec.backend, list(known))
            )
            continue
        if model and model.format not in backend.formats:
            told = f"{spec.backend} does not load {model.format} models"
            yield FieldError(f"specs[{i}].backend", told, f"what does: {', '.join(model.backends)}")
        if spec.precision and spec.precision not in backend.precisions:
            told = f"{spec.backend} cannot be told to run in {spec.precision}"
            able = ", ".join(backend.precisions)
            hint = f"leave it out, or {able}" if able else "leave it out: the model's own is used"
            yield FieldError(f"specs[{i}].precision", told, hint)
        yield from _options(f"specs[{i}].options", spec, backend)


def _options(path: str, spec: Spec, backend: Backend) -> Iterator[FieldError]:
    for name, value in spec.options.items():
        values = backend.options.get(name)
        if values is None:
            hint = nearest(name, list(backend.options)) or f"{spec.backend} has no options"
            yield FieldError(f"{path}.{name}", f"{spec.backend} has no such option", hint)
        elif values and value not in values:
            yield FieldError(f"{path}.{name}", f"is {value[:80]!r}", f"one of {', '.join(values)}")


def agent_errors(specs: Sequence[Spec], agents: Sequence[Agent]) -> Iterator[FieldError]:
    """Agents that are named and not there, or do not have what is wanted of them."""
    by_id = {a.id: a for a in agents}
    for i, spec in enumerate(specs):
        agent = by_id.get(spec.agent)
        if spec.agent and agent is None:
            names = [f"{a.name} ({a.id})" for a in agents[:12]]
            hint = f"registered: {', '.join(names)}" if names else "none is registered; start one: visualprof agent"
            yield FieldError(f"specs[{i}].agent", f"there is no agent {spec.agent[:80]!r}", hint)
        elif agent is not None:
            yield from _lacks(f"specs[{i}]", spec, agent)


def agent_warnings(specs: Sequence[Spec], agents: Sequence[Agent], online: Collection[str]) -> Iterator[FieldError]:
    """Specs that will wait: for their agent, or for one that does not exist yet. online: ids."""
    by_id, backends = {a.id: a for a in agents}, {b.name for b in all_backends()}
    here = [a for a in agents if a.id in online]
    for i, spec in enumerate(specs):
        agent = by_id.get(spec.agent)
        if spec.backend not in backends:  # an error already
            continue
        if agent is not None and agent.id not in online:
            yield FieldError(f"specs[{i}].agent", f"{agent.name} is not there now: this waits until it is back")
        elif not spec.agent and not takers(spec, agents):
            yield FieldError(f"specs[{i}].{_field(spec)}", f"no registered agent has {_what(spec)}", _there(agents))
        elif not spec.agent and not takers(spec, here):
            yield FieldError(f"specs[{i}].{_field(spec)}", f"no agent with {_what(spec)} is there now: this waits")


def takers(spec: Spec, agents: Sequence[Agent]) -> list[Agent]:
    """Agents that can run a spec."""
    return [
        a
        for a in agents
        if spec.agent in ("", a.id)
        and spec.platform in ("", a.capabilities.platform)
        and any(_runs(spec, r) for r in a.capabilities.runtimes)
    ]


def _runs(spec: Spec, runtime: Runtime) -> bool:
    return spec.backend == runtime.backend and spec.version in ("", runtime.version) and _on(spec.device, runtime)


def _on(device: str, runtime: Runtime) -> bool:
    """`cuda` is any of them, as in `matching`."""
    return device in runtime.devices or (device == "cuda" and any(d.startswith("cuda") for d in runtime.devices))


def _lacks(path: str, spec: Spec, agent: Agent) -> Iterator[FieldError]:
    has = agent.capabilities
    runtimes = [r for r in has.runtimes if r.backend == spec.backend]
    of_version = [r for r in runtimes if spec.version in ("", r.version)]
    if spec.platform and spec.platform != has.platform:
        yield FieldError(f"{path}.platform", f"{agent.name} is {has.platform}, not {spec.platform}")
    if not runtimes:
        there = ", ".join(sorted({r.backend for r in has.runtimes})) or "none"
        yield FieldError(f"{path}.backend", f"{agent.name} has no {spec.backend}", f"its runtimes: {there}")
    elif not of_version:
        there = ", ".join(sorted({r.version for r in runtimes}))
        yield FieldError(f"{path}.version", f"{agent.name} has no {spec.backend} {spec.version}", f"it has {there}")
    elif not any(_on(spec.device, r) for r in of_version):
        there = ", ".join(sorted({d for r in of_version for d in r.devices}))
        yield FieldError(f"{path}.device", f"{spec.backend} of {agent.name} has no {spec.device}", f"it has {there}")


def _field(spec: Spec) -> str:
    return "platform" if spec.platform else "version" if spec.version else "backend"


def _what(spec: Spec) -> str:
    on = f" on {spec.platform}" if spec.platform else ""
    return f"{spec.backend} {spec.version}".strip() + f" for {spec.device}{on}"


def _there(agents: Sequence[Agent]) -> str:
    """What is offered, so that a wish can be changed."""
    offers = sorted(
        {f"{r.backend} {r.version} on {a.capabilities.platform}" for a in agents for r in a.capabilities.runtimes}
    )
    told = f"there is {', '.join(offers[:12])}" if offers else "no runtime is registered; start one: visualprof agent"
    return f"this waits until one is registered; {told}"
