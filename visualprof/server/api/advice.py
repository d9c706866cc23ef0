"""Apply advice: a candidate becomes a version of its model, after the original, and its evaluation is queued."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

import msgspec

from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.reader.results.advice import AdviceRow
from visualprof.reader.results.report import Report
from visualprof.remote.agent.child_files import regular_file_inside
from visualprof.remote.protocol import Advise, ModelRef, Request, Spec, build
from visualprof.remote.queue.check.job import InvalidRequest, check_request
from visualprof.remote.queue.model_registration import configuration_from_request, register_model, store_local_files
from visualprof.remote.queue.store.model_records import Lineage, ModelVersion, Origin, RegisteredModel, content_sha256
from visualprof.remote.queue.store.records import Job
from visualprof.remote.queue.uploads import graph_id
from visualprof.server.api.evaluation import Reports
from visualprof.server.api.registry_rows import current_requester
from visualprof.server.identity import current_principal
from visualprof.server.job_service import JobServices
from visualprof.server.routes import READ_ONLY_ERROR, Resource, mutation
from visualprof.server.services import Services
from visualprof.server.visible import ScopedQueueView

MAX_CANDIDATES = 32


class ApplyBody(msgspec.Struct, forbid_unknown_fields=True):
    """The candidates of a report to apply.

    Attributes:
        report: Id of the report.
        candidates: Names of the candidates. Empty: all candidates that pass.
        model: Name of the registered model that gets the versions. "": the parent's model, or a name taken from its
            file.
    """

    report: str
    candidates: list[str] = []
    model: str = ""


class AppliedRow(msgspec.Struct):
    """The outcome of applying a candidate.

    Attributes:
        candidate: Name of the candidate.
        address: Address of the version, or null if the candidate only changes how the same model runs.
        model: Id of the registered model, null like `address`.
        number: Number of the version, null like `address`.
        new: Whether the version was created by this request.
        original: Address of the version of the original in the same model, null like `address`, or if the original is
            no longer stored.
        job: Id of the evaluation job.
        graph: Id of the version on the Graph page, or null if it has no graph.
        parent_graph: Id of the original model on the Graph page, or null if it has no graph.
    """

    candidate: str
    address: str | None
    model: str | None
    number: int | None
    new: bool
    original: str | None
    job: str
    graph: str | None
    parent_graph: str | None


class AppliedAnswer(msgspec.Struct):
    """The outcomes, in the order of the requested candidates."""

    versions: list[AppliedRow]


class Advices(Resource):
    """The routes for the advice of reports."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._reports = services.get(Reports)
        self._queue_view = ScopedQueueView(self._job_service, self._visible)

    @mutation(
        "POST",
        "/advice/apply",
        status=201,
        errors={
            **READ_ONLY_ERROR,
            400: "a candidate cannot be applied",
            404: "there is no such report, or its job was deleted",
            429: "a quota is used up",
        },
    )
    def apply(self, body: ApplyBody) -> AppliedAnswer:
        """Create model versions from candidates, and queue an evaluation of each."""
        self._job_service.require_writable()
        queue, report = self._job_service.open(), self._reports.find(body.report)
        rows = select_candidates(report, body.candidates)
        job = self._visible.job(queue, report.job)
        return AppliedAnswer([self._applied(queue, job, report, row, body.model) for row in rows])

    def _applied(self, queue: JobServices, job: Job, report: Report, row: AdviceRow, name: str) -> AppliedRow:
        created = self._version(job, report, row, name) if row.files else None
        ref = created[1].ref if created else job.request.model
        request = evaluation_request(
            job.request, report, row, ref, f"{created[0].name}/{created[1].number}" if created else ""
        )
        errors, _ = check_request(request, self._queue_view)
        if errors:
            raise InvalidRequest(errors)
        queued, _ = queue.jobs.submit(request, current_principal().user)
        model, version, new = created or (None, None, False)
        parent = self._job_service.inspection(job.request.model.blob) or {}
        return AppliedRow(
            candidate=row.candidate,
            address=f"{model.name}/{version.number}" if model and version else None,
            model=model.id if model else None,
            number=version.number if version else None,
            new=new,
            original=_original_address(model, job.request.model) if model else None,
            job=queued,
            graph=graph_id(version.files[0].sha256, version.facts.format) if version else None,
            parent_graph=graph_id(job.request.model.blob, str(parent.get("format", ""))),
        )

    def _version(
        self, job: Job, report: Report, row: AdviceRow, name: str
    ) -> tuple[RegisteredModel, ModelVersion, bool]:
        ref = store_local_files(self._job_service, current_principal().user, self._files(report, row))
        parent = content_sha256(job.request.model)
        name = name or self._name(parent, job.request.model.name)
        self._add_original(job, name)
        return register_model(
            self._job_service,
            current_requester(),
            name,
            ref,
            source=Origin("job", job=job.id, candidate=row.candidate),
            lineage=Lineage(
                parent=parent,
                converter=" + ".join(converter for converter, _ in row.steps),
                options={key: value for _, options in row.steps for key, value in options.items()},
                tools=dict(row.tools),
                host=report.environment.get("hostname", ""),
            ),
            configuration=configuration_from_request(job.request),
        )

    def _add_original(self, job: Job, name: str) -> None:
        """Add the original as a version of the model, unless it is one, so that the converted model follows it.

        Without its files, or if they belong to another user, the original is left out.
        """
        original = job.request.model
        if not all(self._visible.has_upload(blob) for blob in (original.blob, *(part.blob for part in original.parts))):
            return
        with suppress(NotFound, BadParameter):
            register_model(
                self._job_service,
                current_requester(),
                name,
                original,
                source=Origin("job", job=job.id),
                configuration=configuration_from_request(job.request),
            )

    def _name(self, parent: str, file: str) -> str:
        """Return the name of the model that has the parent as a version, or the file's name without its suffix."""
        registry = self._job_service.open().registry
        changeable = (
            m for m in registry.list_visible(current_principal().viewer) if m.can_be_changed_by(current_requester())
        )
        names = (m.name for m in changeable for version in m.versions if version.sha256 == parent)
        return next(names, PurePosixPath(file).stem)

    def _files(self, report: Report, row: AdviceRow) -> dict[str, Path]:
        """Return the files of the candidate's model by their names, the model first.

        Raises:
            NotFound: A file is missing or is outside of the result folder.
        """
        advice_file = f"{report.folder}/advice.json".removeprefix("./").lstrip("/")
        advice = next((f for f in self._logdir.files("advice.json".__eq__) if f.file == advice_file), None)
        files: dict[str, Path] = {}
        for name in row.files:
            folder = Path(advice.path).parent if advice else Path()
            self._logdir.ensure_local(str(folder / name))
            file = regular_file_inside(folder, name) if advice else None
            if file is None:
                raise NotFound(
                    msg("server.result_no_file", f"the result has no file {name[:100]!r}"),
                    msg("server.moved", "was it moved?"),
                )
            files[PurePosixPath(name).name] = file
        return files


def _original_address(model: RegisteredModel, original: ModelRef) -> str | None:
    """Return the address of the version that has the content of the original."""
    sha256 = content_sha256(original)
    return next((f"{model.name}/{version.number}" for version in model.versions if version.sha256 == sha256), None)


def select_candidates(report: Report, names: list[str]) -> list[AdviceRow]:
    """Return the candidates with the given names, or all that pass if there are no names.

    Raises:
        BadParameter: A name is unknown, a candidate was wrong or failed, or no candidate passes.
    """
    rows = {row.candidate: row for row in report.advice.rows if row.kind != "original"} if report.advice else {}
    selected = names[:MAX_CANDIDATES] or [name for name, row in rows.items() if row.passes]
    if not selected:
        raise BadParameter(
            msg("server.no_candidate_report_passes", "no candidate of this report passes"),
            msg("server.name_applied", "measure again on an idle machine, or with a larger time budget"),
        )
    for name in selected:
        if name not in rows:
            raise BadParameter(
                msg("server.report_no_candidate", f"the report has no candidate {name[:80]!r}"),
                msg("server.it_has", f"it has {', '.join(rows) or 'none'}"),
            )
        row = rows[name]
        if row.verdict in ("wrong", "failed", "no effect", "not tried", "does not apply") or (
            row.steps and not row.files
        ):
            raise BadParameter(
                msg("server.cannot_applied", f"{name} cannot be applied: {row.why or row.verdict}"),
                msg("server.model_not_kept", "its model was not stored"),
            )
    return [rows[name] for name in dict.fromkeys(selected)]


def evaluation_request(original: Request, report: Report, row: AdviceRow, model: ModelRef, address: str) -> Request:
    """Return the job request that measures a candidate like the original model, without advice.

    The request's key is derived from everything that the user chose, so the same choice gives the same job. A version
    that was deleted and created again has another number and is measured again.
    """
    original_spec = next((spec for spec in original.specs if spec.id == report.spec), original.specs[0])
    candidate_spec = build(Spec, {"id": "x", "backend": original_spec.backend, **row.spec})
    spec = replace(candidate_spec, id=row.candidate[:48].rstrip("-.+").replace("+", "-"), agent=original_spec.agent)
    name = (address or f"{original.name or original.model.name} {row.candidate}")[:200]
    key = sha256("\0".join((report.id, row.candidate, model.blob, name)).encode()).hexdigest()
    return replace(original, key=f"advice-{key}", model=model, specs=[spec], name=name, advise=Advise())
