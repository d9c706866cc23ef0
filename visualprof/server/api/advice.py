"""One click: a candidate of a report's advice becomes a version of its model, and its own evaluation begins."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

import msgspec

from visualprof.errors import BadParameter, NotFound
from visualprof.messages import msg
from visualprof.reader.logdir.directory import LogDirectory
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
from visualprof.server.job_service import JobService, JobServices
from visualprof.server.routes import READ_ONLY_ERROR, Resource, mutation
from visualprof.server.visible import ScopedQueueView, Visible

MAX_CANDIDATES = 32


class ApplyBody(msgspec.Struct, forbid_unknown_fields=True):
    """Candidates of a report by their names, none: all that pass. model: name of the registered one, "" as it is."""

    report: str
    candidates: list[str] = []
    model: str = ""


class AppliedRow(msgspec.Struct):
    """What a candidate became.

    model, number: the version, null for a way to run the same model. job: its evaluation. graph, parent_graph: ids on
    the Graph page, null where there is none.
    """

    candidate: str
    address: str | None
    model: str | None
    number: int | None
    new: bool
    job: str
    graph: str | None
    parent_graph: str | None


class AppliedAnswer(msgspec.Struct):
    """The versions, in the order of the advice."""

    versions: list[AppliedRow]


class Advices(Resource):
    """The routes over the advice of reports."""

    def __init__(self, logdir: LogDirectory, job_service: JobService, visible: Visible, reports: Reports) -> None:
        self._logdir, self._job_service, self._visible, self._reports = logdir, job_service, visible, reports
        self._queue_view = ScopedQueueView(job_service, visible)

    @mutation(
        "POST", "/advice/apply", status=201,
        errors={
            **READ_ONLY_ERROR, 400: "a candidate cannot be applied", 404: "there is no such report, or its job is gone",
            429: "a quota is used up",
        },
    )  # fmt: skip
    def apply(self, body: ApplyBody) -> AppliedAnswer:
        """Make versions of candidates, and queue the evaluation of each."""
        self._job_service.require_writable()
        queue, report = self._job_service.open(), self._reports.find(body.report)
        rows = select_candidates(report, body.candidates)
        job = self._visible.job(queue, report.job)
        return AppliedAnswer([self._applied(queue, job, report, row, body.model) for row in rows])

    def _applied(self, queue: JobServices, job: Job, report: Report, row: AdviceRow, name: str) -> AppliedRow:
        made = self._version(job, report, row, name) if row.files else None
        ref = made[1].ref if made else job.request.model
        request = evaluation_request(job.request, report, row, ref, f"{made[0].name}/{made[1].number}" if made else "")
        errors, _ = check_request(request, self._queue_view)
        if errors:
            raise InvalidRequest(errors)
        queued, _ = queue.jobs.submit(request, current_principal().user)
        model, version, new = made or (None, None, False)
        parent = self._job_service.inspection(job.request.model.blob) or {}
        return AppliedRow(
            candidate=row.candidate,
            address=f"{model.name}/{version.number}" if model and version else None,
            model=model.id if model else None,
            number=version.number if version else None,
            new=new,
            job=queued,
            graph=graph_id(version.files[0].sha256, version.facts.format) if version else None,
            parent_graph=graph_id(job.request.model.blob, str(parent.get("format", ""))),
        )

    def _version(
        self, job: Job, report: Report, row: AdviceRow, name: str
    ) -> tuple[RegisteredModel, ModelVersion, bool]:
        ref = store_local_files(self._job_service, current_principal().user, self._files(report, row))
        parent = content_sha256(job.request.model)
        return register_model(
            self._job_service,
            current_requester(),
            name or self._name(parent, job.request.model.name),
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

    def _name(self, parent: str, file: str) -> str:
        """That of the model which the parent is a version of, else the file's."""
        registry = self._job_service.open().registry
        mine = (
            m for m in registry.list_visible(current_principal().viewer) if m.can_be_changed_by(current_requester())
        )
        named = (m.name for m in mine for version in m.versions if version.sha256 == parent)
        return next(named, PurePosixPath(file).stem)

    def _files(self, report: Report, row: AdviceRow) -> dict[str, Path]:
        """The made model's files by their names, the model first.

        Raises: NotFound: they are not there, or lead out of the result.
        """
        place = f"{report.folder}/advice.json".removeprefix("./").lstrip("/")
        advice = next((f for f in self._logdir.files("advice.json".__eq__) if f.file == place), None)
        found: dict[str, Path] = {}
        for name in row.files:
            folder = Path(advice.path).parent if advice else Path()
            self._logdir.ensure_local(str(folder / name))
            file = regular_file_inside(folder, name) if advice else None
            if file is None:
                raise NotFound(
                    msg("server.result_no_file", f"the result has no file {name[:100]!r}"),
                    msg("server.moved", "was it moved?"),
                )
            found[PurePosixPath(name).name] = file
        return found


def select_candidates(report: Report, names: list[str]) -> list[AdviceRow]:
    """The candidates of those names; without names those that pass.

    Raises: BadParameter: there is none of that name, it was found wrong or failed, or nothing passes.
    """
    rows = {row.candidate: row for row in report.advice.rows if row.kind != "original"} if report.advice else {}
    wanted = names[:MAX_CANDIDATES] or [name for name, row in rows.items() if row.passes]
    if not wanted:
        raise BadParameter(
            msg("server.no_candidate_report_passes", "no candidate of this report passes"),
            msg("server.name_applied", "name those that are to be applied"),
        )
    for name in wanted:
        if name not in rows:
            raise BadParameter(
                msg("server.report_no_candidate", f"the report has no candidate {name[:80]!r}"),
                msg("server.it_has", f"it has {', '.join(rows) or 'none'}"),
            )
        row = rows[name]
        if row.verdict in ("wrong", "failed", "no effect") or (row.steps and not row.files):
            raise BadParameter(
                msg("server.cannot_applied", f"{name} cannot be applied: {row.why or row.verdict}"),
                msg("server.model_not_kept", "its model was not kept"),
            )
    return [rows[name] for name in dict.fromkeys(wanted)]


def evaluation_request(asked: Request, report: Report, row: AdviceRow, model: ModelRef, address: str) -> Request:
    """The job that measures a candidate as the original was measured, without advice.

    Its key is made of all that the click decides, so that the same click gives the same job; a version that was deleted
    and made again has another number, and is measured again.
    """
    own = next((spec for spec in asked.specs if spec.id == report.spec), asked.specs[0])
    said = build(Spec, {"id": "x", "backend": own.backend, **row.spec})
    spec = replace(said, id=row.candidate[:48].rstrip("-.+").replace("+", "-"), agent=own.agent)
    name = (address or f"{asked.name or asked.model.name} {row.candidate}")[:200]
    key = sha256("\0".join((report.id, row.candidate, model.blob, name)).encode()).hexdigest()
    return replace(asked, key=f"advice-{key}", model=model, specs=[spec], name=name, advise=Advise())
