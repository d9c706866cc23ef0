"""Registered models as the API returns them, with their parents and measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from visualprof.messages import msg
from visualprof.reader.results.points import Point
from visualprof.reader.results.report import Report
from visualprof.remote.queue.store.model_records import (
    Configuration,
    Lineage,
    ModelFile,
    ModelVersion,
    Origin,
    RegisteredModel,
    Requester,
)
from visualprof.remote.queue.uploads import graph_id
from visualprof.server.identity import current_principal
from visualprof.server.responses import build_row
from visualprof.server.routes import Query
from visualprof.views.measure.reports.best_points import HIGHEST_THROUGHPUT, LOWEST_LATENCY, is_doubtful

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


Setup = tuple[str, str, int]  # run configuration, machine and batch size of a measurement


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


class RowBuilder:
    """A builder of the rows that the API returns.

    Args:
        models: All visible models. Parents are looked up in these models.
        reports: All visible reports, newest first.
    """

    def __init__(self, models: Sequence[RegisteredModel], reports: Sequence[Report]) -> None:
        self._reports_by_file: dict[str, list[Report]] = {}
        for report in reports:
            self._reports_by_file.setdefault(report.model_sha256, []).append(report)
        self._by_content: dict[str, list[tuple[RegisteredModel, ModelVersion]]] = {}
        for model in models:
            for version in model.versions:
                self._by_content.setdefault(version.sha256, []).append((model, version))
        self._points = {model.id: self._points_of(model) for model in models}
        self._shared = Counter(setup for points in self._points.values() for setup in points)

    def model(self, model: RegisteredModel) -> ModelRow:
        """Return the row of a model."""
        best = [self._best(version) for version in model.versions]
        return build_row(
            ModelRow,
            model,
            changeable=model.can_be_changed_by(current_requester()),
            versions=len(model.versions),
            newest=self.version(model, model.versions[0]) if model.versions else None,
            best_samples_per_s=max((throughput for throughput, _ in best if throughput is not None), default=None),
            best_p50_ns=min((latency_ns for _, latency_ns in best if latency_ns is not None), default=None),
            compared=self._compared(self._points.get(model.id) or self._points_of(model)),
        )

    def _points_of(self, model: RegisteredModel) -> dict[Setup, tuple[Report, Point]]:
        """Return the newest measurement of a model by how it was measured, of the newest version with any."""
        measured = (reports for version in model.versions if (reports := self._reports(version)))
        reports = next(measured, list[Report]())
        points: dict[Setup, tuple[Report, Point]] = {}
        for report in reports:
            for point in report.points:
                points.setdefault((report.spec, report.agent, point.batch), (report, point))
        return points

    def _compared(self, points: dict[Setup, tuple[Report, Point]]) -> ComparablePoint | None:
        """Return the measurement in the setup that most models share, at the smallest batch size."""
        if not points:
            return None
        setup = min(points, key=lambda setup: (-self._shared[setup], setup[2], setup[:2]))
        (spec, agent, batch), (report, point) = setup, points[setup]
        return ComparablePoint(
            report=report.id,
            spec=spec,
            agent=agent,
            batch=batch,
            samples_per_s=point.samples_per_s,
            p50_ns=point.p50_ns,
            doubtful=is_doubtful(point),
        )

    def version(self, model: RegisteredModel, version: ModelVersion) -> VersionRow:
        """Return the row of a version, with its parent and measurements."""
        parent, (throughput, latency_ns) = self._parent(model, version), self._best(version)
        operators = version.facts.operators
        return build_row(
            VersionRow,
            version,
            address=f"{model.name}/{version.number}",
            format=version.facts.format,
            parameters=version.facts.parameters,
            nodes=None if operators is None else sum(operators.values()),
            operators=operators,
            graph=_graph_id(version),
            best_samples_per_s=throughput,
            best_p50_ns=latency_ns,
            parent=_parent_row(*parent) if parent else None,
            aliases=[name for name, number in model.aliases.items() if number == version.number],
            evaluations=[_report_summary(report) for report in self._reports(version)],
            beside=_compare_with_parent(self._reports(version), self._reports(parent[1])) if parent else None,
        )

    def _reports(self, version: ModelVersion) -> list[Report]:
        return self._reports_by_file.get(version.files[0].sha256, [])

    def _best(self, version: ModelVersion) -> tuple[float | None, int | None]:
        summaries = [_report_summary(report) for report in self._reports(version)]
        throughput = max(
            (summary.best_samples_per_s for summary in summaries if summary.best_samples_per_s is not None),
            default=None,
        )
        return throughput, min(
            (summary.best_p50_ns for summary in summaries if summary.best_p50_ns is not None), default=None
        )

    def _parent(self, model: RegisteredModel, version: ModelVersion) -> tuple[RegisteredModel, ModelVersion] | None:
        """Return the registered version that has the parent's content, preferably a version of the same model."""
        candidates = self._by_content.get(version.lineage.parent, []) if version.lineage else []
        return min(
            candidates, key=lambda candidate: (candidate[0].id != model.id, candidate[1].created_ns), default=None
        )


def _parent_row(model: RegisteredModel, version: ModelVersion) -> ParentRow:
    address = f"{model.name}/{version.number}"
    return ParentRow(address, version.size_bytes, version.facts.parameters, _graph_id(version))


def _graph_id(version: ModelVersion) -> str | None:
    return graph_id(version.files[0].sha256, version.facts.format)


def _report_summary(report: Report) -> ReportSummary:
    highest, fastest = HIGHEST_THROUGHPUT.best(report.points), LOWEST_LATENCY.best(report.points)
    return build_row(
        ReportSummary,
        report,
        best_samples_per_s=highest.samples_per_s if highest else None,
        best_p50_ns=fastest.p50_ns if fastest else None,
    )


def _compare_with_parent(reports: Sequence[Report], parent_reports: Sequence[Report]) -> ParentComparison | None:
    """Compare the newest two reports that, as far as the reports show, differ only in the model."""
    for report, parent_report in product(reports, parent_reports):
        batches = {point.batch for point in parent_report.points}
        best = HIGHEST_THROUGHPUT.best(point for point in report.points if point.batch in batches)
        parent_point = parent_report.point(best.batch) if best else None
        if best and parent_point and _measurement_setup(report) == _measurement_setup(parent_report):
            return ParentComparison(
                spec=report.spec,
                agent=report.agent,
                batch=best.batch,
                samples_per_s=best.samples_per_s,
                parent_samples_per_s=parent_point.samples_per_s,
                p50_ns=best.p50_ns,
                parent_p50_ns=parent_point.p50_ns,
            )
    return None


def _measurement_setup(report: Report) -> tuple[object, ...]:
    return report.agent, report.backend, report.version, report.device, report.precision, report.threads
