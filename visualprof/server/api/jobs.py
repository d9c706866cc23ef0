"""Jobs, for the page and for `visualprof submit`."""

from __future__ import annotations

from flask import Blueprint, Response, request

from visualprof.remote.backends import Backend, all_backends
from visualprof.remote.protocol import DTYPES
from visualprof.remote.queue.check.job import FieldError, Invalid, check_request, parse_request, points_of
from visualprof.remote.queue.draft.compose import MEASURES, USUAL
from visualprof.server.answers import answer, raw
from visualprof.server.api import job_schema as schema
from visualprof.server.api.bodies import body
from visualprof.server.api.job_log import piece
from visualprof.server.api.job_rows import JobList
from visualprof.server.remote_service import Queue, Remote

MAX_JOB = 1 << 20


def blueprint(remote: Remote) -> Blueprint:
    """The routes."""
    routes = Blueprint("jobs", __name__, url_prefix="/api/v1")
    routes.register_error_handler(Invalid, _refused)
    jobs = JobList(remote)

    @routes.get("/jobs")
    def listing() -> Response:
        return raw(jobs.listing(), "application/json")

    @routes.post("/jobs")
    def submit() -> Response:
        queue = _changing(remote)
        wanted = parse_request(body(MAX_JOB))
        known = queue.jobs.known(wanted)  # what was accepted stays so, whatever has changed since
        if known is not None:
            return answer(jobs.one(known))
        errors, _ = check_request(wanted, remote)
        if errors:
            raise Invalid(errors)
        job, new = queue.jobs.submit(wanted)
        return answer(jobs.one(job), 201 if new else 200)

    @routes.post("/jobs/check")
    def check() -> Response:
        wanted = parse_request(body(MAX_JOB))
        errors, warnings = check_request(wanted, remote)
        points = points_of(wanted) if wanted.specs else 0
        return answer(schema.CheckAnswer(_fields(errors), _fields(warnings), points))

    @routes.get("/jobs/<job>")
    def one(job: str) -> Response:
        return answer(jobs.one(job))

    @routes.post("/jobs/<job>/cancel")
    def cancel(job: str) -> Response:
        _changing(remote).jobs.cancel(job)
        return answer(jobs.one(job))

    @routes.post("/jobs/<job>/retry")
    def retry(job: str) -> Response:
        _changing(remote).jobs.retry(job, request.args.get("task", ""))
        return answer(jobs.one(job))

    @routes.get("/tasks/<task>/log")
    def log(task: str) -> Response:
        return answer(piece(jobs.queue(), task))

    @routes.get("/backends")
    def backends() -> Response:
        measures = [schema.MeasureEntry(name, field, USUAL[name]) for name, field in MEASURES.items()]
        return answer(schema.BackendsAnswer([_backend(b) for b in all_backends()], list(DTYPES), measures))

    return routes


def _changing(remote: Remote) -> Queue:
    remote.refuse_read_only()
    return remote.opened()


def _fields(errors: list[FieldError]) -> list[schema.FieldError]:
    return [schema.FieldError(each.field, each.error, each.hint or None) for each in errors]


def _refused(refusal: Invalid) -> Response:
    return answer(schema.JobRefused(refusal.error, refusal.hint or None, _fields(refusal.errors)), 400)


def _backend(backend: Backend) -> schema.BackendEntry:
    options = {name: list(values) for name, values in backend.options.items()}
    formats, suffixes, precisions = (list(each) for each in (backend.formats, backend.suffixes, backend.precisions))
    return schema.BackendEntry(backend.name, backend.package, formats, suffixes, precisions, options)
