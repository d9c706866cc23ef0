"""Registered models and their versions as values, as the API returns them. This module needs no database."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from visualprof.remote.protocol import ModelRef, Part


@dataclass(frozen=True)
class Requester:
    """The user who makes a request.

    Attributes:
        user: Owner of new models; None without accounts.
        viewer: Viewer as in `visibility`.
    """

    user: str | None = None
    viewer: str | None = None


@dataclass(frozen=True)
class Lineage:
    """How a version was derived from another.

    Attributes:
        parent: Digest of the other version, `content_sha256` for several files; "" is unknown.
        converter: Name of the converter.
        options: Options of the converter.
        tools: Versions of the packages that took part.
        host: Name of the machine.
    """

    parent: str = ""
    converter: str = ""
    options: dict[str, str] = field(default_factory=dict[str, str])
    tools: dict[str, str] = field(default_factory=dict[str, str])
    host: str = ""


@dataclass(frozen=True)
class Origin:
    """The origin of a version's files.

    Attributes:
        kind: Kind of origin.
        path: Path or name on the sender's side.
        job: Id of the job.
        candidate: Candidate in the job's advice.
    """

    kind: Literal["upload", "path", "job"] = "upload"
    path: str = ""
    job: str = ""
    candidate: str = ""


@dataclass(frozen=True)
class ConfiguredInput:
    """An input of the next job.

    Attributes:
        name: Name of the input.
        dtype: Type of its values.
        dims: Sizes, or names of dimensions; None if unknown.
    """

    name: str
    dtype: str
    dims: list[int | str] | None


@dataclass(frozen=True)
class Configuration:
    """Defaults of the next job.

    Attributes:
        inputs: Inputs of the model.
        sweep: Swept dimension; None is the batch, "" sweeps no dimension.
        min_batch: Smallest size of the swept dimension.
        max_batch: Largest size of the swept dimension.
        dims: Sizes of the other dimensions.
    """

    inputs: list[ConfiguredInput] = field(default_factory=list[ConfiguredInput])
    sweep: str | None = None
    min_batch: int | None = None
    max_batch: int | None = None
    dims: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class ModelFile:
    """A file of a version.

    Attributes:
        path: Name of the model; of a weight file, its path relative to the model.
        sha256: Digest of the file.
        size_bytes: Size of the file.
    """

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class ModelFacts:
    """Facts that the reader found in a model.

    Attributes:
        format: Format of the model.
        parameters: Number of parameters; None is unknown.
        operators: Number of operators per type; None is unknown.
    """

    format: str
    parameters: int | None = None
    operators: dict[str, int] | None = None


@dataclass(frozen=True, kw_only=True)
class ModelVersion:
    """A version of a registered model. Only its notes and configuration can change.

    Attributes:
        model: Id of the registered model.
        number: Number of the version.
        sha256: Digest of the content, see `content_sha256`.
        files: Files, the model first.
        facts: Facts that the reader found.
        configuration: Defaults of the next job.
        source: Where the files come from.
        lineage: From which version this one was derived.
        notes: Notes of users.
        creator: Id of the user who added the version; None without accounts.
        created_ns: When the version was added.
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
        """Size of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def ref(self) -> ModelRef:
        """The version as jobs refer to it."""
        first, *others = self.files
        return ModelRef(first.sha256, first.path, [Part(file.path, file.sha256) for file in others])


@dataclass(frozen=True, kw_only=True)
class RegisteredModel:
    """A registered model with its versions.

    Attributes:
        id: Id of the model.
        owner: Id of its owner; None without accounts.
        name: Name of the model.
        visibility: Who may see it.
        project: Id of the project that it is shared with.
        notes: Notes of users.
        tags: Tags.
        created_ns: When it was registered.
        aliases: Numbers of versions by alias.
        versions: Versions, newest first.
    """

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

    def can_be_changed_by(self, requester: Requester) -> bool:
        """Return whether the requester may change the model: its owner, and viewers who see everything."""
        return requester.viewer is None or self.owner == requester.viewer


@dataclass(frozen=True)
class RemovalImpact:
    """References to versions that are about to be removed.

    Attributes:
        jobs: Ids of waiting and running jobs that use them.
        children: Versions that were derived from them, as `NAME/3`.
        aliases: Aliases that point to them.
    """

    jobs: list[str]
    children: list[str]
    aliases: list[str]


def content_sha256(model: ModelRef) -> str:
    """Return the digest of a model's content.

    It is the digest of the only file, or of the output of `sha256sum` for a model with weight files. The model's line
    comes
    first and without a name, because its name does not matter; the other lines follow by path.
    """
    if not model.parts:
        return model.blob
    lines = [(model.blob, ""), *sorted(((part.blob, part.path) for part in model.parts), key=_path)]
    return hashlib.sha256("".join(f"{sha256}  {path}\n" for sha256, path in lines).encode()).hexdigest()


def _path(line: Sequence[str]) -> str:
    return line[1]
