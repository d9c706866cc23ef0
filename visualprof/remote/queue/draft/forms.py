"""What is typed, and what the server makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from visualprof.remote.protocol import Advise, Priority, Request, SearchObjective
from visualprof.remote.queue.check.request_json import FieldError


@dataclass(frozen=True)
class DraftInput:
    """An input of the model.

    dtype "", dims null: as the model's file says. dims: `batch, 3, 224x224`, or `()` for a single number.
    fill "": the array whose file bears the input's name, else random values. blob: sha256 of an array for "file".
    """

    name: str
    dtype: str = ""
    dims: str | None = None
    fill: Literal["", "random", "zeros", "file"] = ""
    blob: str = ""


@dataclass(frozen=True)
class DraftSpec:
    """Ways to run the model: one spec for each combination of backends, precisions and threads.

    id "": made from the rest. backends empty: all that load the model and that a machine has which is online.
    agent: name or id of a machine. device "": cuda on the platform cuda, else cpu.
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
    """A search of the best settings; "" where the server chooses.

    objective "": none. over: values by the setting, `1:4` or `f32, bf16`; the batch may be among them. where:
    constraints, with commas between.
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
    """A job as it is typed: texts, and nothing where the server chooses.

    model: sha256 of an uploaded file. model_name: of that file, "" the latest by which
    it was uploaded. parts: sha256 of the files
    beside it, by their paths. arrays: sha256 of uploaded
    arrays, which inputs take by their names. inputs null: those of the model. sweep: the dimension, null the batch,
    "" none. sizes: of the swept dimension, null those of `usual_sizes`, which "" leaves to the model. dims: sizes of
    the other named dimensions. specs null: a first choice of machines. measure: by the names of `MEASURES`.
    spread: specs may go to several machines. advise: candidates that are to be tried; its data by the inputs' names.
    search: its best settings are looked for.
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
    """What is wrong with a draft. code: what kind of mistake, for texts in other languages; "" for all others."""

    code: Literal["", "dims", "size", "sweep", "no_spec", "whole", "number"] = ""


@dataclass(frozen=True)
class SpecChoices:
    """What machines offer for a spec as it stands.

    versions: newest first. machines: ids of those that can run it. lacks: by id why another one cannot.
    """

    versions: list[str]
    devices: list[str]
    machines: list[str]
    lacks: dict[str, str]


@dataclass(frozen=True)
class CheckedDraft:
    """The job that a draft became, and what a page shows of it.

    request: complete, also where there are errors. dims: named dimensions of the inputs, in their order.
    sizes: of those that are not swept. choices: for each spec. points: to be measured, of all specs together.
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
    """A draft as JSON has it. Raises: msgspec.ValidationError: it is none."""
    return msgspec.convert(form, Draft)
