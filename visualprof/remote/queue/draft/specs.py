"""The specs of a draft: combinations of settings, their agents and their ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import groupby, islice, product
from typing import Any

from visualprof.messages import msg
from visualprof.remote.backends import all_backends
from visualprof.remote.protocol import Runtime, Spec, version_key
from visualprof.remote.queue.check.inspect import InspectedModel
from visualprof.remote.queue.check.limits import MAX_SPECS
from visualprof.remote.queue.check.machines import unknown_agent
from visualprof.remote.queue.check.matching import eligible_agents, matching_runtimes, missing_requirements
from visualprof.remote.queue.draft.forms import DraftError, DraftSpec, SpecChoices
from visualprof.remote.queue.store.records import Agent

MAX_FIRST_SPECS = 4
ID_LENGTH = 44  # leaves space for a number


class AgentList:
    """The registered agents. `online` contains those that were seen within a lease."""

    def __init__(self, agents: Sequence[Agent], lease_s: float) -> None:
        self.all = agents
        self.online = [agent for agent in agents if agent.online(lease_s)]

    def named(self, text: str) -> list[Agent]:
        """Return the agents of an id or name.

        Of several with the same name, return the online one if there is only one.
        """
        agents = [a for a in self.all if a.id == text] or [a for a in self.all if a.name == text]
        online = [a for a in agents if a in self.online]
        return online if len(online) == 1 else agents

    def agents_for_spec(self, spec: Spec) -> list[Agent]:
        """Return the agents that may run a spec: the one that it names, else all online ones."""
        if spec.agent:
            return [a for a in self.all if a.id == spec.agent]
        return [a for a in self.online if spec.platform in ("", a.capabilities.platform)]


def first_specs(model: InspectedModel, machines: AgentList) -> list[DraftSpec]:
    """Return a spec per online agent and backend that loads the model, on the agent's best device; a few at most.

    If no agent has such a backend, return a spec per backend that loads the model on a CPU.
    """
    several = len(machines.online) > 1
    specs = [
        DraftSpec(backends=[backend], agent=agent.id if several else "", device=_best_device(runtimes))
        for backend in model.backends
        for agent in machines.online
        if (runtimes := matching_runtimes(agent.capabilities.runtimes, backend, ""))
    ]
    anywhere = {backend.name for backend in all_backends() if backend.cpu}
    return (
        specs or [DraftSpec(backends=[backend_name]) for backend_name in model.backends if backend_name in anywhere]
    )[:MAX_FIRST_SPECS]


def _best_device(runtimes: Sequence[Runtime]) -> str:
    return next((device for runtime in runtimes for device in runtime.devices if device != "cpu"), "cpu")


def expand_specs(
    drafts: Sequence[DraftSpec], model: InspectedModel | None, machines: AgentList
) -> tuple[list[Spec], list[DraftError]]:
    """Return the specs of the drafts with distinct ids, and errors."""
    specs, errors = list[Spec](), list[DraftError]()
    for draft in drafts[: MAX_SPECS + 1]:
        path = f"specs[{len(specs)}]"
        agents = machines.named(draft.agent) if draft.agent else []
        errors += _agent_errors(f"{path}.agent", draft.agent, agents, machines)
        common = Spec(
            id=draft.id,
            backend="",
            version=draft.version,
            agent=agents[0].id if agents else draft.agent,
            platform=draft.platform,
            device=draft.device or ("cuda" if draft.platform == "cuda" else "cpu"),
            options={name: value for name, value in draft.options.items() if value},
        )
        backends = draft.backends
        if not backends and model:
            backends = [b for b in model.backends if eligible_agents(replace(common, backend=b), machines.online)]
            if not backends and (agents or not draft.agent):
                errors.append(_nobody(model, common, machines))
        lists = (dict.fromkeys(values) for values in (backends, draft.precisions or [""], draft.threads or [""]))
        for backend, precision, threads in islice(product(*lists), MAX_SPECS + 1 - len(specs)):
            if not re.fullmatch(r"\d{0,18}", threads):
                errors.append(
                    DraftError(
                        f"specs[{len(specs)}].threads",
                        msg("queue.no_number", f"{threads[:40]!r} is no number"),
                        code="whole",
                    )
                )
                threads = ""
            chosen: dict[str, Any] = {"precision": precision, "threads": int(threads or 0)}
            specs.append(replace(common, backend=backend, **chosen))
    if not specs and not errors:
        errors.append(
            DraftError(
                "specs",
                msg("queue.there_none", "there is no run configuration"),
                msg("queue.add_least_one", "add at least one"),
                "no_spec",
            )
        )
    return assign_ids(specs, machines.all), errors


def _agent_errors(field: str, agent: str, named: Sequence[Agent], machines: AgentList) -> Iterator[DraftError]:
    if agent and not named:
        yield DraftError(**asdict(unknown_agent(field, agent, machines.all)))
    elif len(named) > 1:
        ids = ", ".join(a.id for a in named)
        yield DraftError(
            field,
            msg("queue.agents_named", f"{len(named)} agents are named {agent!r}"),
            msg("queue.name_one_id", f"name one by its id: {ids}"),
        )


def _nobody(model: InspectedModel, spec: Spec, machines: AgentList) -> DraftError:
    runtimes = [r for a in machines.online if spec.agent in ("", a.id) for r in a.capabilities.runtimes]
    offers = ", ".join(sorted({f"{r.backend} {r.version} ({', '.join(r.devices)})" for r in runtimes}))
    error = msg("queue.no_agent_online_can", f"no agent that is online can run this {model.format} model") + (
        msg("queue.there", f"; there is {offers}") if offers else ""
    )
    later = msg("queue.queue_later_backend", f"queue it for later: --backend {' or '.join(model.backends)}")
    name = model.backends[0]
    install = msg(
        "queue.install_runtime",
        f"install the runtime (visualprof agent install-runtime {name}), or name a Python that has it "
        f"(visualprof agent --runtime {name}=PYTHON), or {later}",
    )
    start = msg("queue.start_one_visualprof_agent_2", f"run visualprof agent, or {later}")
    return DraftError("specs", error, install if machines.online else start)


def assign_ids(specs: Sequence[Spec], agents: Sequence[Agent]) -> list[Spec]:
    """Return the specs with ids: the given one, else a generated one, with a number if it is taken."""
    used_ids = {spec.id for spec in specs if spec.id}
    named: list[Spec] = []
    for spec in specs:
        base = spec.id or generate_spec_id(spec, agents)
        numbered = (base if n == 1 else f"{base}-{n}" for n in range(1, len(specs) + 2))
        name = spec.id or next(name for name in numbered if name not in used_ids)
        used_ids.add(name)
        named.append(replace(spec, id=name))
    return named


def generate_spec_id(spec: Spec, agents: Sequence[Agent]) -> str:
    """Return a descriptive id that is a valid folder name, as `ort-1.23.2-gpu-box-cuda0-f16-4t`."""
    short = {b.name: b.short for b in all_backends()}.get(spec.backend) or spec.backend
    agent_name = next((a.name for a in agents if a.id == spec.agent), "") if spec.agent else spec.platform
    device = "" if spec.device == "cpu" else spec.device.replace(":", "")
    threads = f"{spec.threads}t" if spec.threads else ""
    parts = [short, spec.version, agent_name, device, spec.precision, threads, *spec.options.values()]
    return _joined(map(_slug, parts))[:ID_LENGTH] or "spec"


def _slug(text: str) -> str:
    return re.sub(r"^[^A-Za-z0-9]+|[-_.]+$", "", re.sub(r"[^A-Za-z0-9_.-]+", "-", text))


def _joined(parts: Iterable[str]) -> str:
    """Join the parts that are not empty; repeated parts, as platform and device `cuda`, appear once."""
    return "-".join(part for part, _ in groupby(filter(None, parts)))


def spec_choices(spec: Spec, machines: AgentList) -> SpecChoices:
    """Return what agents offer for a spec."""
    runtimes = [
        r for a in machines.agents_for_spec(spec) for r in matching_runtimes(a.capabilities.runtimes, spec.backend, "")
    ]
    versions = sorted({r.version for r in runtimes}, key=version_key, reverse=True)
    devices = dict.fromkeys(
        ["cpu", *(d for r in matching_runtimes(runtimes, spec.backend, spec.version) for d in r.devices)]
    )
    anywhere = replace(spec, agent="", platform="")
    reasons = {a.id: next(missing_requirements(anywhere, a), None) for a in machines.all}
    return SpecChoices(
        versions,
        list(devices),
        [agent for agent, lack in reasons.items() if lack is None],
        {agent: lack.error for agent, lack in reasons.items() if lack},
    )
