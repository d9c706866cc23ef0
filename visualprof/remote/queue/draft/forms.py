"""User input for a job, and the job that the server derives from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from visualprof.remote.protocol import Advise, Priority, Request, SearchObjective
from visualprof.remote.queue.check.request_json import FieldError


@dataclass(frozen=True)
class DraftInput:
    """An input of the model.

    Attributes:
        name: Name of the input.
        dtype: Type of its values; "" is the type in the model's file.
        dims: As `batch, 3, 224x224`, or `()` for a scalar; null is the dimensions in the model's file.
        fill: "" is the array with the input's name, else random values.
        blob: Digest of an array, for fill "file".
    """

    name: str
    dtype: str = ""
    dims: str | None = None
    fill: Literal["", "random", "zeros", "file"] = ""
    blob: str = ""


@dataclass(frozen=True)
class DraftSpec:
    """Ways to run the model: one spec per combination of backends, precisions and threads.

    Attributes:
        id: Id; "" is generated.
        backends: Backends; empty is all that load the model and that an online agent has.
        version: Version of the runtime.
        agent: Name or id of an agent.
        platform: Platform.
        device: Device; "" is cuda on the platform cuda, else cpu.
        precisions: Precisions.
        threads: Numbers of threads.
        options: Options of the backend.
    """

    id: str = ""
    backends: list[str] = field(default_factory=list[str])
    version: str = ""
    agent: str = ""
    platform: str = ""
    device: str = ""
    precisions: list[str] = field(default_factory=lambda: [""])
    threads: list[str] = field(default_factory=lambda: [""])
    options: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class DraftSearch:
    """A search for the best settings; "" is the server's choice.

    Attributes:
        objective: Objective; "" searches nothing.
        over: Values by setting, as `1:4` or `f32, bf16`; the batch may be a setting.
        where: Constraints, separated by commas.
        trials: Maximum number of trials.
        trial_s: Minimum measuring time of a trial.
        budget_s: Time after which no trial starts.
        seed: Seed of the choice of trials.
    """

    objective: SearchObjective = ""
    over: dict[str, str] = field(default_factory=dict[str, str])
    where: str = ""
    trials: str = ""
    trial_s: str = ""
    budget_s: str = ""
    seed: str = ""


@dataclass(frozen=True)
class Draft:
    """A job as the user enters it: texts, and nothing where the server chooses.

    Attributes:
        model: Digest of an uploaded file.
        model_name: Name of that file; "" is the name of its last upload.
        parts: Digests of weight files, by path.
        key: Key of the job.
        name: Name of the job.
        arrays: Digests of uploaded arrays, which inputs use by name.
        inputs: Inputs; null is the model's inputs.
        sweep: Swept dimension; null is the batch, "" sweeps no dimension.
        sizes: Sizes of the swept dimension; null is `usual_sizes`.
        usual_sizes: Default sizes; "" is the size in the uploaded arrays, else the model's.
        dims: Sizes of the other named dimensions.
        specs: Specs; null is a first choice of agents.
        measure: Values of `MEASURE_FIELDS`.
        spread: Whether specs may run on several agents.
        priority: Priority.
        advise: Candidates to try; its data is by input.
        search: Settings to search.
    """

    model: str
    model_name: str = ""
    parts: dict[str, str] = field(default_factory=dict[str, str])
    key: str = ""
    name: str = ""
    arrays: list[str] = field(default_factory=list[str])
    inputs: list[DraftInput] | None = None
    sweep: str | None = None
    sizes: str | None = None
    usual_sizes: str = ""
    dims: dict[str, str] = field(default_factory=dict[str, str])
    specs: list[DraftSpec] | None = None
    measure: dict[str, str] = field(default_factory=dict[str, str])
    spread: bool = False
    priority: Priority = "normal"
    advise: Advise = field(default_factory=Advise)
    search: DraftSearch = field(default_factory=DraftSearch)


@dataclass(frozen=True)
class DraftError(FieldError):
    """An error in a draft. code identifies the kind of error for translations; "" is any other."""

    code: Literal["", "dims", "size", "sweep", "no_spec", "whole", "number"] = ""


@dataclass(frozen=True)
class SpecChoices:
    """Choices for a spec that the agents offer.

    Attributes:
        versions: Versions, newest first.
        devices: Devices.
        machines: Ids of the agents that can run the spec.
        lacks: Why other agents cannot, by id.
    """

    versions: list[str]
    devices: list[str]
    machines: list[str]
    lacks: dict[str, str]


@dataclass(frozen=True)
class CheckedDraft:
    """The job that a draft became, and what the web UI shows about it.

    Attributes:
        request: The request, complete even with errors.
        errors: Errors.
        warnings: Warnings.
        points: Number of points of all specs.
        dims: Named dimensions of the inputs, in order.
        sizes: Sizes of those that are not swept.
        choices: Choices of each spec.
    """

    request: Request
    errors: list[DraftError]
    warnings: list[FieldError]
    points: int
    dims: list[str]
    sizes: dict[str, int]
    choices: list[SpecChoices]


msgspec.json.Decoder(Draft)


def parse_draft(form: dict[str, Any]) -> Draft:
    """Return the draft of a JSON object.

    Raises:
        msgspec.ValidationError: The object is not a draft.
    """
    return msgspec.convert(form, Draft)
