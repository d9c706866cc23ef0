"""Validation of a job's specs: by their backend, and by the registered agents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from visualprof.messages import msg
from visualprof.remote.backends import Backend, all_backends
from visualprof.remote.protocol import Spec
from visualprof.remote.queue.check.inspect import InspectedModel
from visualprof.remote.queue.check.matching import eligible_agents, missing_requirements
from visualprof.remote.queue.check.request_json import FieldError, suggest
from visualprof.remote.queue.store.records import Agent

START = msg("queue.start_one_visualprof_agent", "start one: visualprof agent")


def backend_errors(specs: Sequence[Spec], model: InspectedModel | None) -> Iterator[FieldError]:
    """Yield errors for unknown backends, backends that do not load the model, and unknown options."""
    backends = {b.name: b for b in all_backends()}
    for i, spec in enumerate(specs):
        backend = backends.get(spec.backend)
        if backend is None:
            error = msg("queue.there_no_backend", f"there is no backend {spec.backend[:80]!r}")
            yield FieldError(f"specs[{i}].backend", error, suggest(spec.backend, list(backends)))
            continue
        if model and model.format not in backend.formats:
            error = msg("queue.not_load_models", f"{spec.backend} does not load {model.format} models")
            yield FieldError(f"specs[{i}].backend", error, msg("queue.what", f"what does: {', '.join(model.backends)}"))
        if spec.precision and spec.precision not in backend.precisions:
            error = msg("queue.cannot_told_run", f"{spec.backend} does not support precision {spec.precision}")
            able = ", ".join(backend.precisions)
            hint = (
                msg("queue.leave_out_2", f"leave it out, or {able}")
                if able
                else msg("queue.leave_out_models_own", "leave it out: the model's own is used")
            )
            yield FieldError(f"specs[{i}].precision", error, hint)
        yield from _options(f"specs[{i}].options", spec, backend)


def lane_errors(specs: Sequence[Spec], most: int) -> Iterator[FieldError]:
    """Yield errors for backends that do not support concurrent lanes.

    Args:
        specs: The specs.
        most: Largest requested number of lanes.
    """
    alone = {b.name for b in all_backends() if not b.concurrent_sessions}
    for i, spec in enumerate(specs):
        if most > 1 and spec.backend in alone:
            error = msg(
                "queue.runs_model_once_time",
                f"{spec.backend} runs a model once at a time, {most} at once are asked for",
            )
            yield FieldError(
                f"specs[{i}].backend",
                error,
                msg("queue.leave_concurrency_out_backend", "leave the concurrency out, or the backend"),
            )


def _options(path: str, spec: Spec, backend: Backend) -> Iterator[FieldError]:
    for name, value in spec.options.items():
        values = backend.options.get(name)
        if values is None:
            hint = suggest(name, list(backend.options)) or msg("queue.no_options", f"{spec.backend} has no options")
            yield FieldError(f"{path}.{name}", msg("queue.no_such_option", f"{spec.backend} has no such option"), hint)
        elif values and value not in values:
            yield FieldError(
                f"{path}.{name}", f"is {value[:80]!r}", msg("queue.one", f"choose from {', '.join(values)}")
            )


def agent_errors(specs: Sequence[Spec], agents: Sequence[Agent]) -> Iterator[FieldError]:
    """Yield errors for unknown agents, and for agents that cannot run their spec."""
    by_id = {a.id: a for a in agents}
    for i, spec in enumerate(specs):
        if spec.agent and spec.agent not in by_id:
            yield unknown_agent(f"specs[{i}].agent", spec.agent, agents)
        elif spec.agent:
            yield from (
                replace(e, field=f"specs[{i}].{e.field}") for e in missing_requirements(spec, by_id[spec.agent])
            )


def unknown_agent(field: str, agent: str, agents: Sequence[Agent]) -> FieldError:
    """Return the error for an unknown agent."""
    names = ", ".join(f"{a.name} ({a.id})" for a in agents[:12])
    hint = (
        msg("queue.there", f"there is {names}")
        if names
        else msg("queue.none_registered", f"none is registered; {START}")
    )
    return FieldError(field, msg("queue.there_no_agent", f"there is no agent {agent[:80]!r}"), hint)


def agent_warnings(specs: Sequence[Spec], agents: Sequence[Agent], online: Sequence[Agent]) -> Iterator[FieldError]:
    """Yield warnings for specs that will wait for an agent."""
    by_id, backends = {a.id: a for a in agents}, {b.name for b in all_backends()}
    for i, spec in enumerate(specs):
        agent = by_id.get(spec.agent)
        if spec.backend not in backends:  # an error already
            continue
        if agent is not None and agent.standing != "works":
            yield FieldError(
                f"specs[{i}].agent",
                msg("queue.given_no_task_now", f"{agent.name} is given no task now: this waits until it is again"),
            )
        elif agent is not None and agent not in online:
            yield FieldError(
                f"specs[{i}].agent",
                msg("queue.not_there_now_waits", f"{agent.name} is not there now: this waits until it is back"),
            )
        elif not spec.agent and not eligible_agents(spec, online):
            field = f"specs[{i}].{'platform' if spec.platform else 'version' if spec.version else 'backend'}"
            platform = f" on {spec.platform}" if spec.platform else ""
            runtime = f"{spec.backend} {spec.version}".strip() + f" for {spec.device}{platform}"
            if eligible_agents(spec, agents):
                yield FieldError(
                    field, msg("queue.no_agent_there_now", f"no agent with {runtime} is there now: this waits")
                )
            else:
                yield FieldError(
                    field, msg("queue.no_registered_agent", f"no registered agent has {runtime}"), _offers(agents)
                )


def _offers(agents: Sequence[Agent]) -> str:
    """Return what agents offer instead."""
    offers = {f"{r.backend} {r.version} on {a.capabilities.platform}" for a in agents for r in a.capabilities.runtimes}
    alternatives = (
        msg("queue.there", f"there is {', '.join(sorted(offers)[:12])}")
        if offers
        else msg("queue.no_runtime_registered", f"no runtime is registered; {START}")
    )
    return msg("queue.waits_until_one_registered", f"this waits until one is registered; {alternatives}")
