"""Submit and manage jobs, for the web UI and `visualprof submit`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from flask import Blueprint, Response
from msgspec import Meta

from visualprof.remote.backends import all_backends
from visualprof.remote.protocol import DTYPES, SCENARIOS, Request
from visualprof.remote.queue.check.job import FieldError, InvalidRequest, check_request, parse_request, point_count
from visualprof.remote.queue.draft.compose import DEFAULT_TEXTS, MEASURE_FIELDS, compose, draft_from_request
from visualprof.remote.queue.draft.forms import CheckedDraft, Draft
from visualprof.remote.queue.draft.loads import LOAD_FIELDS
from visualprof.server.api.job_list import JobList
from visualprof.server.api.job_logs import LogAnswer, LogQuery, read_log_part
from visualprof.server.api.job_rows import JobAnswer, JobsAnswer, JobsQuery
from visualprof.server.identity import current_principal
from visualprof.server.job_service import JobServices
from visualprof.server.responses import build_row, json_response
from visualprof.server.routes import READ_ONLY_ERROR, Query, Resource, get, mutation
from visualprof.server.services import Services
from visualprof.server.visible import ScopedQueueView

JOB_ERRORS = {404: "there is no such job"}
CHANGE_ERRORS = {**READ_ONLY_ERROR, **JOB_ERRORS, 409: "the state of the job does not allow it"}
RequestBody = Annotated[bytes, Request]


class TaskQuery(Query):
    """A task of a job."""

    task: Annotated[str, Meta(description="id of the task; all tasks when absent")] = ""


class KeepRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Whether the retention rules skip a job."""

    kept: bool


class CheckAnswer(msgspec.Struct):
    """The problems of a job request.

    Attributes:
        errors: All errors. Empty: the job would be accepted.
        warnings: All warnings.
        points: Number of points that the job would measure.
    """

    errors: list[FieldError]
    warnings: list[FieldError]
    points: int


class JobErrors(msgspec.Struct):
    """The body of a 400 response to a submission. `error` is the first of `errors`."""

    error: str
    hint: str | None
    errors: list[FieldError]


class BackendEntry(msgspec.Struct):
    """A backend that the server supports, for the choices of the Jobs page."""

    name: str
    package: str
    formats: list[str]
    suffixes: list[str]
    precisions: list[str]
    options: dict[str, list[str]]


class MeasureEntry(msgspec.Struct):
    """A field of a job form about measuring.

    Attributes:
        name: Name of the field in the form.
        field: Name of the field in a job request.
        usual: Default text.
        choices: Allowed values, empty for free text.
        load: Whether the field describes the load: how runs are requested.
    """

    name: str
    field: str
    usual: str
    choices: tuple[str, ...] = ()
    load: bool = False


def measure_entries() -> list[MeasureEntry]:
    """Return the fields of a job form about measuring."""
    choices = {"mlperf": SCENARIOS}
    plain = [MeasureEntry(name, field, DEFAULT_TEXTS[name]) for name, field in MEASURE_FIELDS.items()]
    return plain + [
        MeasureEntry(n, field, DEFAULT_TEXTS[n], choices.get(n, ()), True) for n, (field, _) in LOAD_FIELDS.items()
    ]


class BackendsAnswer(msgspec.Struct):
    """Every supported backend, whether an agent has it or not, with the input types and the fields about measuring."""

    backends: list[BackendEntry]
    dtypes: list[str]
    measures: list[MeasureEntry]


class FreedAnswer(msgspec.Struct):
    """The storage that deleting a job frees.

    Attributes:
        runs: Results of the job, relative to the first log directory.
        size_bytes: Freed bytes, counted for the job's owner.
    """

    runs: list[str]
    size_bytes: int


class Jobs(Resource):
    """The routes for jobs."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._jobs = JobList(self._job_service, self._visible)
        self._queue_view = ScopedQueueView(self._job_service, self._visible)

    def prepare(self, queue: JobServices) -> None:
        """Load every job and its visibility before the first request. Reading 10,000 jobs takes a second."""
        if self._visible.accounts:
            self._visible.accounts.sharing.revision()
        with self._jobs.refreshed(queue):
            pass

    @get("/jobs")
    def listing(self, query: JobsQuery) -> JobsAnswer:
        """List every job, or the jobs that changed since a revision."""
        return self._jobs.listing(query.since)

    @mutation(
        "POST",
        "/jobs",
        status=201,
        errors={
            **READ_ONLY_ERROR,
            400: "the job is invalid; `errors` lists all problems",
            409: "jobs cannot be run here",
            429: "a quota is used up",
        },
    )
    def submit(self, body: RequestBody) -> JobAnswer | Response:
        """Submit a job. Answers 200 with the existing job if the same key was submitted before."""
        queue = self._open_writable_queue()
        request = parse_request(body)
        # A job that was accepted once stays accepted, even if the check would now reject it.
        existing = queue.jobs.find(request, current_principal().user)
        if existing is not None:
            return json_response(self._jobs.get(existing))
        errors, _ = check_request(request, self._queue_view)
        if errors:
            raise InvalidRequest(errors)
        job, new = queue.jobs.submit(request, current_principal().user)
        return json_response(self._jobs.get(job), 201 if new else 200)

    @mutation("POST", "/jobs/check", errors={400: "the body is not a job"})
    def check(self, body: RequestBody) -> CheckAnswer:
        """Check a job without submitting it."""
        request = parse_request(body)
        errors, warnings = check_request(request, self._queue_view)
        return CheckAnswer(_field_errors(errors), _field_errors(warnings), point_count(request) if request.specs else 0)

    @mutation("POST", "/jobs/draft", errors={400: "the body is not a job form"})
    def draft(self, body: Draft) -> CheckedDraft:
        """Turn a job form into a complete job request."""
        return compose(body, self._queue_view)

    @get("/jobs/<job>/draft", errors=JOB_ERRORS)
    def template(self, job: str) -> Draft:
        """Return the job form that gives this job."""
        return draft_from_request(self._visible.job(self._jobs.queue(), job).request, self._queue_view.agents())

    @get("/jobs/<job>", errors=JOB_ERRORS)
    def job(self, job: str) -> JobAnswer:
        """Return one job."""
        return self._jobs.get(job)

    @mutation("POST", "/jobs/<job>/cancel", errors=CHANGE_ERRORS)
    def cancel(self, job: str) -> JobAnswer:
        """Cancel a job."""
        queue = self._open_writable_queue()
        queue.jobs.cancel(self._visible.changeable_job(queue, job))
        return self._jobs.get(job)

    @mutation("POST", "/jobs/<job>/retry", errors=CHANGE_ERRORS)
    def retry(self, job: str, query: TaskQuery) -> JobAnswer:
        """Retry failed or canceled tasks."""
        queue = self._open_writable_queue()
        queue.jobs.retry(self._visible.changeable_job(queue, job), query.task)
        return self._jobs.get(job)

    @mutation("PUT", "/jobs/<job>/kept", errors=CHANGE_ERRORS)
    def keep(self, job: str, body: KeepRequest) -> JobAnswer:
        """Set whether the retention rules skip a job."""
        return self._jobs.keep(self._visible.changeable_job(self._open_writable_queue(), job), body.kept)

    @get("/jobs/<job>/space", errors=JOB_ERRORS)
    def space(self, job: str) -> FreedAnswer:
        """Return what deleting a job would free."""
        queue = self._jobs.queue()
        return build_row(FreedAnswer, queue.deleter.estimate(self._visible.job(queue, job).id))

    @mutation("DELETE", "/jobs/<job>", errors=CHANGE_ERRORS)
    def remove(self, job: str) -> FreedAnswer:
        """Delete a finished job with its results."""
        queue = self._open_writable_queue()
        return build_row(FreedAnswer, queue.deleter.delete(self._visible.changeable_job(queue, job)))

    @get("/tasks/<task>/log", errors={404: "there is no such task"})
    def log(self, task: str, query: LogQuery) -> LogAnswer:
        """Return a piece of a task's log."""
        return read_log_part(self._jobs.queue(), task, query)

    @get("/backends")
    def backends(self) -> BackendsAnswer:
        """List every supported backend."""
        return BackendsAnswer(
            [build_row(BackendEntry, backend) for backend in all_backends()], list(DTYPES), measure_entries()
        )

    def blueprint(self) -> Blueprint:
        """Return the routes as a Flask blueprint. A rejected job is answered with all of its errors."""
        blueprint = super().blueprint()
        blueprint.register_error_handler(InvalidRequest, _job_errors_response)
        return blueprint

    def _open_writable_queue(self) -> JobServices:
        self._job_service.require_writable()
        return self._job_service.open()


def _field_errors(errors: list[FieldError]) -> list[FieldError]:
    return [FieldError(error.field, error.error, error.hint or None) for error in errors]


def _job_errors_response(refusal: InvalidRequest) -> Response:
    return json_response(JobErrors(refusal.error, refusal.hint or None, _field_errors(refusal.errors)), 400)
