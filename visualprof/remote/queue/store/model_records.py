"""Registered models and their versions as values, as the API answers with them. They need no database."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from visualprof.remote.protocol import ModelRef, Part


@dataclass(frozen=True)
class Requester:
    """Who asks. user: whose a new model becomes, None without accounts. viewer: as in `visibility`."""

    user: str | None = None
    viewer: str | None = None


@dataclass(frozen=True)
class Lineage:
    """How a version was made of another.

    parent: sha256 of that, of several files `whole_sha256`; "" unknown. options: of the converter, by its names.
    tools: packages that took part, with their versions. host: name of the machine.
    """

    parent: str = ""
    converter: str = ""
    options: dict[str, str] = field(default_factory=dict[str, str])
    tools: dict[str, str] = field(default_factory=dict[str, str])
    host: str = ""


@dataclass(frozen=True)
class Origin:
    """Where a version's files come from. path: as whoever sent them calls it. candidate: of the job's advice."""

    kind: Literal["upload", "path", "job"] = "upload"
    path: str = ""
    job: str = ""
    candidate: str = ""


@dataclass(frozen=True)
class ConfiguredInput:
    """An input as the next job is to feed it. dims: sizes, or names of dimensions; None where nothing says them."""

    name: str
    dtype: str
    dims: list[int | str] | None


@dataclass(frozen=True)
class Configuration:
    """What the next job begins with.

    sweep: the dimension that is swept, None the batch, "" none. min_batch, max_batch: its sizes. dims: of the others.
    """

    inputs: list[ConfiguredInput] = field(default_factory=list[ConfiguredInput])
    sweep: str | None = None
    min_batch: int | None = None
    max_batch: int | None = None
    dims: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class ModelFile:
    """A file of a version. path: of the model its name; of others where the model looks for it, beside itself."""

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class ModelFacts:
    """What the reader tells. parameters: None unknown. operators: how many of each type; None unknown."""

    format: str
    parameters: int | None = None
    operators: dict[str, int] | None = None


@dataclass(frozen=True)
class ModelVersion:
    """A version of a registered model; only its notes and configuration change.

    model: id. sha256: of its content, as `whole_sha256`. files: the model first. creator: None without accounts.
    """

    model: str
    number: int
    sha256: str
    files: list[ModelFile]
    facts: ModelFacts
    configuration: Configuration
    source: Origin
    lineage: Lineage | None
    notes: str
    creator: str | None
    created_ns: int

    @property
    def size_bytes(self) -> int:
        """Of all its files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def ref(self) -> ModelRef:
        """As jobs name it."""
        first, *others = self.files
        return ModelRef(first.sha256, first.path, [Part(file.path, file.sha256) for file in others])


@dataclass(frozen=True)
class RegisteredModel:
    """A name with versions, the newest first. owner: None without accounts. aliases: names of versions."""

    id: str
    owner: str | None
    name: str
    visibility: Literal["private", "project", "public"]
    project: str | None
    notes: str
    tags: list[str]
    created_ns: int
    aliases: dict[str, int]
    versions: list[ModelVersion]

    def can_be_changed_by(self, by: Requester) -> bool:
        """May somebody change it? Its owner, and who sees everything."""
        return by.viewer is None or self.owner == by.viewer


@dataclass(frozen=True)
class RemovalImpact:
    """What is left without a version that is removed: jobs that use it now, and versions that were made of it.

    jobs: ids of those that wait or run. children: addresses, as `NAME/3`. aliases: that lead to it.
    """

    jobs: list[str]
    children: list[str]
    aliases: list[str]


def content_sha256(model: ModelRef) -> str:
    """Of a model's content: that of its file; with others beside it, that of what `sha256sum` would list.

    Its own line comes first, and without its name, under which nothing looks for it; the others follow by path.
    """
    if not model.parts:
        return model.blob
    lines = [(model.blob, ""), *sorted(((part.blob, part.path) for part in model.parts), key=_path)]
    return hashlib.sha256("".join(f"{sha256}  {path}\n" for sha256, path in lines).encode()).hexdigest()


def _path(line: Sequence[str]) -> str:
    return line[1]
