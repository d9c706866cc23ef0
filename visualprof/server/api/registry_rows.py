"""Registered models in the words of the API: with their parents, and what was measured of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from visualprof.messages import msg
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
from visualprof.views.measure.best_points import HIGHEST_THROUGHPUT, LOWEST_LATENCY

Visibility = Literal["private", "project", "public"]


class AddressQuery(Query):
    """A version by its address."""

    hint = msg("server.ids_listed_api_v1_registry", "ids are listed by /api/v1/registry")

    address: Annotated[str, Meta(description="`NAME/3`, `NAME@production`, or `NAME`: its newest version")]


class FileQuery(Query):
    """A file of a version."""

    path: Annotated[str, Meta(description="as the version lists it; the model itself when absent")] = ""


class ForceQuery(Query):
    """Whether to remove what is in use."""

    force: Annotated[bool, Meta(description="also while a job uses it")] = False


class ReportSummary(msgspec.Struct):
    """A report of a version's model file. best: over its batch sizes."""

    id: str
    name: str
    spec: str
    agent: str
    finished_ns: int
    best_samples_per_s: float | None
    best_p50_ns: int | None


class ParentComparison(msgspec.Struct, kw_only=True):
    """The newest pair of reports of a version and its parent that one machine measured in one way, at one batch size.

    That of the sizes of both at which the version is fastest.
    """

    spec: str
    agent: str
    batch: int
    samples_per_s: float | None
    parent_samples_per_s: float | None
    p50_ns: int | None
    parent_p50_ns: int | None


class ParentRow(msgspec.Struct):
    """A version that another was made of. graph: its id on the Graph page."""

    address: str
    size_bytes: int
    parameters: int | None
    graph: str | None


class VersionRow(msgspec.Struct):
    """A version. nodes: operators of all types. parent: null where it is not registered, or not seen.

    graph: its id on the Graph page. evaluations: reports of its model file, the newest first.
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
    """A registered model. newest: null when all its versions were removed. changeable: whoever asks may change it."""

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


class RegistryAnswer(msgspec.Struct):
    """Every registered model, by name. problem: why none can be added here, null when one can."""

    models: list[ModelRow]
    problem: str | None
    hint: str | None


class RegisteredAnswer(msgspec.Struct):
    """A model with its versions, the newest first."""

    model: ModelRow
    versions: list[VersionRow]


class VersionAnswer(msgspec.Struct):
    """One version. new: whether it was made now; the same content is the same version."""

    model: ModelRow
    version: VersionRow
    new: bool = False


class NewVersionBody(msgspec.Struct, forbid_unknown_fields=True):
    """A version of the model of that name, which is made where there is none.

    blob: sha256 of an uploaded model, file its name; parts: sha256 of files beside it, by their paths. Or job: whose
    model it becomes, with what was asked for of its inputs. path: where the file was, for people.
    parent: address of the version that it was made of; lineage: how, and also of which, where that is not registered.
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
    """What is to change. project: with the visibility of that name alone."""

    name: str | UnsetType = UNSET
    notes: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    visibility: Visibility | UnsetType = UNSET
    project: str | None = None


class VersionChange(msgspec.Struct, forbid_unknown_fields=True):
    """What may change of a version."""

    notes: str | UnsetType = UNSET
    configuration: Configuration | UnsetType = UNSET


class AliasTarget(msgspec.Struct, forbid_unknown_fields=True):
    """Where an alias leads."""

    number: int


class RemovalImpact(msgspec.Struct):
    """What is left without something that is removed.

    evaluations: ids of reports; they stay. children: addresses of versions that were made of it; they stay, too.
    jobs: ids of those that wait or run: they go on, as they name the files themselves.
    """

    versions: list[str]
    jobs: list[str]
    children: list[str]
    aliases: list[str]
    evaluations: list[str]


def current_requester() -> Requester:
    """Who sends the present request."""
    return Requester(current_principal().user, current_principal().viewer)


class RowBuilder:
    """Models in the words of the API. models: all that may be seen, among which parents are looked for."""

    def __init__(self, models: Sequence[RegisteredModel], reports: Sequence[Report]) -> None:
        self._of_file: dict[str, list[Report]] = {}
        for report in reports:
            self._of_file.setdefault(report.model_sha256, []).append(report)
        self._by_content: dict[str, list[tuple[RegisteredModel, ModelVersion]]] = {}
        for model in models:
            for version in model.versions:
                self._by_content.setdefault(version.sha256, []).append((model, version))

    def model(self, model: RegisteredModel) -> ModelRow:
        """A model of a list."""
        best = [self._best(version) for version in model.versions]
        return build_row(
            ModelRow, model, changeable=model.can_be_changed_by(current_requester()), versions=len(model.versions),
            newest=self.version(model, model.versions[0]) if model.versions else None,
            best_samples_per_s=max((most for most, _ in best if most is not None), default=None),
            best_p50_ns=min((least for _, least in best if least is not None), default=None),
        )  # fmt: skip

    def version(self, model: RegisteredModel, version: ModelVersion) -> VersionRow:
        """A version with its parent and what was measured of it."""
        parent, (most, least) = self._parent(model, version), self._best(version)
        operators = version.facts.operators
        return build_row(
            VersionRow, version, address=f"{model.name}/{version.number}", format=version.facts.format,
            parameters=version.facts.parameters, nodes=None if operators is None else sum(operators.values()),
            operators=operators, graph=_graph_id(version), best_samples_per_s=most, best_p50_ns=least,
            parent=_parent_row(*parent) if parent else None,
            aliases=[name for name, number in model.aliases.items() if number == version.number],
            evaluations=[_report_summary(report) for report in self._reports(version)],
            beside=_compare_with_parent(self._reports(version), self._reports(parent[1])) if parent else None,
        )  # fmt: skip

    def _reports(self, version: ModelVersion) -> list[Report]:
        return self._of_file.get(version.files[0].sha256, [])

    def _best(self, version: ModelVersion) -> tuple[float | None, int | None]:
        of = [_report_summary(report) for report in self._reports(version)]
        most = max((one.best_samples_per_s for one in of if one.best_samples_per_s is not None), default=None)
        return most, min((one.best_p50_ns for one in of if one.best_p50_ns is not None), default=None)

    def _parent(self, model: RegisteredModel, version: ModelVersion) -> tuple[RegisteredModel, ModelVersion] | None:
        """The registered version of its parent's content, of the same model where it has one."""
        found = self._by_content.get(version.lineage.parent, []) if version.lineage else []
        return min(found, key=lambda one: (one[0].id != model.id, one[1].created_ns), default=None)


def _parent_row(model: RegisteredModel, version: ModelVersion) -> ParentRow:
    address = f"{model.name}/{version.number}"
    return ParentRow(address, version.size_bytes, version.facts.parameters, _graph_id(version))


def _graph_id(version: ModelVersion) -> str | None:
    return graph_id(version.files[0].sha256, version.facts.format)


def _report_summary(report: Report) -> ReportSummary:
    most, least = HIGHEST_THROUGHPUT.best(report.points), LOWEST_LATENCY.best(report.points)
    return build_row(
        ReportSummary, report, best_samples_per_s=most.samples_per_s if most else None,
        best_p50_ns=least.p50_ns if least else None,
    )  # fmt: skip


def _compare_with_parent(mine: Sequence[Report], theirs: Sequence[Report]) -> ParentComparison | None:
    """Of reports that differ in the model alone, as far as they tell."""
    for one, other in product(mine, theirs):
        batches = {point.batch for point in other.points}
        best = HIGHEST_THROUGHPUT.best(point for point in one.points if point.batch in batches)
        before = other.point(best.batch) if best else None
        if best and before and _measurement_setup(one) == _measurement_setup(other):
            return ParentComparison(
                spec=one.spec,
                agent=one.agent,
                batch=best.batch,
                samples_per_s=best.samples_per_s,
                parent_samples_per_s=before.samples_per_s,
                p50_ns=best.p50_ns,
                parent_p50_ns=before.p50_ns,
            )
    return None


def _measurement_setup(report: Report) -> tuple[object, ...]:
    return report.agent, report.backend, report.version, report.device, report.precision, report.threads
