"""Registered models as the API returns them, with their parents and measurements."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from visualprof.messages import msg
from visualprof.remote.queue.store.model_records import Configuration, Lineage, ModelFile, Origin, Requester
from visualprof.server.identity import current_principal
from visualprof.server.routes import Query

Visibility = Literal["private", "project", "public"]


class AddressQuery(Query):
    """The address of a version."""

    hint = msg("server.ids_listed_api_v1_registry", "ids are listed by /api/v1/registry")

    address: Annotated[str, Meta(description="`NAME/3`, `NAME@production`, or `NAME` for the newest version")]


class FileQuery(Query):
    """A file of a version."""

    path: Annotated[str, Meta(description="path as listed by the version; the model file when absent")] = ""


class ForceQuery(Query):
    """Whether to delete versions that are in use."""

    force: Annotated[bool, Meta(description="also delete versions that a job uses")] = False


class ReportSummary(msgspec.Struct):
    """A report of a version's model file. The best values are taken over all batch sizes."""

    id: str
    name: str
    spec: str
    agent: str
    finished_ns: int
    best_samples_per_s: float | None
    best_p50_ns: int | None


class ComparablePoint(msgspec.Struct):
    """A measurement of a model that can be compared with other models.

    Models are measured in different ways, and the best values of two models may have nothing in common. This is the
    newest measurement in the run configuration, on the machine and at the batch size that most of the models share.

    Attributes:
        report: Id of the report.
        spec: The run configuration.
        agent: The machine.
        batch: Batch size.
        samples_per_s: Throughput.
        p50_ns: Median latency, or null if there are too few runs.
        doubtful: Whether the measurement was unstable or the machine busy.
    """

    report: str
    spec: str
    agent: str
    batch: int
    samples_per_s: float | None
    p50_ns: int | None
    doubtful: bool


class ParentComparison(msgspec.Struct, kw_only=True):
    """The newest two reports that measured a version and its parent in the same way on the same machine.

    Attributes:
        spec: Id of the run configuration.
        agent: Name of the machine.
        batch: The batch size at which the version is fastest, among the sizes that both reports have.
        samples_per_s: Throughput of the version.
        parent_samples_per_s: Throughput of the parent.
        p50_ns: Median latency of the version.
        parent_p50_ns: Median latency of the parent.
    """

    spec: str
    agent: str
    batch: int
    samples_per_s: float | None
    parent_samples_per_s: float | None
    p50_ns: int | None
    parent_p50_ns: int | None


class ParentRow(msgspec.Struct):
    """The version from which another version was made.

    Attributes:
        address: Address of the version.
        size_bytes: Size of the files.
        parameters: Number of parameters, or null if unknown.
        graph: Id on the Graph page, or null if there is no graph.
    """

    address: str
    size_bytes: int
    parameters: int | None
    graph: str | None


class VersionRow(msgspec.Struct):
    """A version of a registered model.

    Attributes:
        number: Number of the version, from 1.
        address: `NAME/NUMBER`.
        sha256: Hash of the content.
        files: The files, the model first.
        format: Format of the model.
        size_bytes: Size of the files.
        parameters: Number of parameters, or null if unknown.
        nodes: Number of operators of all types, or null if unknown.
        operators: Number of operators by type, or null if unknown.
        configuration: Configuration that the next job starts with.
        source: Where the files came from.
        lineage: How the version was made from its parent, or null if unknown.
        parent: The parent, or null if it is not registered or not visible.
        notes: Notes of users.
        creator: User who added the version.
        created_ns: Time of creation.
        aliases: Aliases of the version.
        graph: Id on the Graph page, or null if there is no graph.
        evaluations: Reports of the model file, newest first.
        best_samples_per_s: Highest throughput, or null if unknown.
        best_p50_ns: Lowest median latency, or null if unknown.
        beside: Comparison with the parent, or null if there are no matching reports.
    """

    number: int
    address: str
    sha256: str
    files: list[ModelFile]
    format: str
    size_bytes: int
    parameters: int | None
    nodes: int | None
    operators: dict[str, int] | None
    configuration: Configuration
    source: Origin
    lineage: Lineage | None
    parent: ParentRow | None
    notes: str
    creator: str | None
    created_ns: int
    aliases: list[str]
    graph: str | None
    evaluations: list[ReportSummary]
    best_samples_per_s: float | None
    best_p50_ns: int | None
    beside: ParentComparison | None


class ModelRow(msgspec.Struct):
    """A registered model.

    Attributes:
        id: Id of the model.
        name: Name of the model.
        owner: Owner of the model, or null without an owner.
        visibility: Who may see the model.
        project: Id of the project that may see the model, or null.
        changeable: Whether the current user may change the model.
        notes: Notes of users.
        tags: Tags of the model.
        created_ns: Time of creation.
        aliases: Version numbers by alias.
        versions: Number of versions.
        newest: The newest version, or null if all versions were deleted.
        best_samples_per_s: Highest throughput of all versions, or null if unknown.
        best_p50_ns: Lowest median latency of all versions, or null if unknown.
        compared: The measurement to compare with other models, or null if nothing was measured.
    """

    id: str
    name: str
    owner: str | None
    visibility: Visibility
    project: str | None
    changeable: bool
    notes: str
    tags: list[str]
    created_ns: int
    aliases: dict[str, int]
    versions: int
    newest: VersionRow | None
    best_samples_per_s: float | None
    best_p50_ns: int | None
    compared: ComparablePoint | None


class RegistryAnswer(msgspec.Struct):
    """Every visible registered model, by name.

    Attributes:
        models: The models.
        problem: Why models cannot be added here, or null if they can.
        hint: What to do about the problem.
    """

    models: list[ModelRow]
    problem: str | None
    hint: str | None


class RegisteredAnswer(msgspec.Struct):
    """A model with its versions, newest first."""

    model: ModelRow
    versions: list[VersionRow]


class VersionAnswer(msgspec.Struct):
    """One version.

    Attributes:
        model: The model.
        version: The version.
        new: Whether this request created the version. Adding the same content again returns the existing version.
    """

    model: ModelRow
    version: VersionRow
    new: bool = False


class NewVersionBody(msgspec.Struct, forbid_unknown_fields=True):
    """A version to add to the model of the given name. The model is created if it does not exist.

    Attributes:
        name: Name of the model.
        blob: sha256 of the uploaded model file.
        file: Name of the model file.
        parts: sha256 of further files of the model, by their relative paths.
        job: Id of a job, instead of `blob`. The job's model becomes the version, with the inputs of its request.
        path: Original path of the file, for information only.
        lineage: How the version was made. It also names the parent if the parent is not registered.
        parent: Address of the registered version that this version was made from.
        notes: Notes of users.
        configuration: Configuration that the next job starts with.
    """

    name: str
    blob: str = ""
    file: str = ""
    parts: dict[str, str] = {}
    job: str = ""
    path: str = ""
    lineage: Lineage | None = None
    parent: str = ""
    notes: str = ""
    configuration: Configuration | None = None


class ModelChange(msgspec.Struct, forbid_unknown_fields=True):
    """Changes to a model. `project` is required with the visibility `project` and not allowed with another one."""

    name: str | UnsetType = UNSET
    notes: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    visibility: Visibility | UnsetType = UNSET
    project: str | None = None


class VersionChange(msgspec.Struct, forbid_unknown_fields=True):
    """Changes to a version."""

    notes: str | UnsetType = UNSET
    configuration: Configuration | UnsetType = UNSET


class AliasTarget(msgspec.Struct, forbid_unknown_fields=True):
    """The version that an alias refers to."""

    number: int


class RemovalImpact(msgspec.Struct):
    """Objects that deleting a model or a version affects.

    Attributes:
        versions: Addresses of the deleted versions.
        jobs: Ids of waiting and running jobs. They continue, because they refer to the files directly.
        children: Addresses of versions that were made from the deleted versions. They stay.
        aliases: Aliases of the deleted versions.
        evaluations: Ids of the reports. They stay.
    """

    versions: list[str]
    jobs: list[str]
    children: list[str]
    aliases: list[str]
    evaluations: list[str]


def current_requester() -> Requester:
    """Return the user who sent the current request."""
    return Requester(current_principal().user, current_principal().viewer)
