"""The part of the OpenAPI document that the Run, Agents and Evaluation pages use.

What agents ask for is not in it: docs/remote.md has that protocol.
"""

from __future__ import annotations

from typing import Any

from visualprof.remote.protocol import Request
from visualprof.remote.queue.draft.forms import Draft, Drafted
from visualprof.server.api import job_schema as job
from visualprof.server.api.operations import Json, error, operation, parameter, ref

KINDS: list[type[Any]] = [
    Request,
    Draft,
    Drafted,
    job.UploadAnswer,
    job.FilesAnswer,
    job.CheckAnswer,
    job.JobRefused,
    job.JobsAnswer,
    job.JobAnswer,
    job.LogAnswer,
    job.AgentsAnswer,
    job.AgentChange,
    job.BackendsAnswer,
    job.ReportsAnswer,
    job.EvaluationAnswer,
    job.PointAnswer,
]
_READ_ONLY = {403: "the server is read-only"}
_NO_JOB = {404: "there is no such job"}
_NO_REPORT = {400: "a parameter has a wrong name or value", 404: "there is no such report or point"}
_TEXT: Json = {"type": "string"}
_WHOLE: Json = {"type": "integer", "minimum": 0}


def paths() -> Json:
    """Uploads, jobs, agents and evaluation."""
    return _upload_paths() | _job_paths() | _agent_paths() | _evaluation_paths()


def _upload_paths() -> Json:
    name = parameter("name", _TEXT, "query", "of the file", required=True)
    errors = _READ_ONLY | {
        413: "too large",
        422: "no model or array that can be used",
        507: "the disk is full",
    }
    upload = _order("Keep a model or an array for jobs", job.UploadAnswer, [name], errors, status=201)
    upload["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    return {"/api/v1/uploads": {"post": upload}}


def _job_paths() -> Json:
    submit = _order("Submit a job", job.JobAnswer, [], _READ_ONLY | {409: "jobs cannot be run here"}, Request, 201)
    submit["responses"]["400"] = {
        "description": "something is wrong with the job; `errors` has all of it",
        "content": {"application/json": {"schema": ref(job.JobRefused)}},
    }
    submit["responses"]["200"] = submit["responses"]["201"] | {"description": "the job of the same key"}
    check = _order("Check a job without submitting it", job.CheckAnswer, [], {}, Request)
    check["responses"]["400"] = submit["responses"]["400"] | {"description": "this is no job at all"}
    draft = _order("A complete job of what was typed", Drafted, [], {400: "this is no draft"}, Draft)
    one = [parameter("job", _TEXT, "path", "a job's id")]
    changed = _READ_ONLY | _NO_JOB | {409: "its state does not allow it"}
    task = parameter("task", _TEXT, "query", "only this one; all when absent")
    log = [
        parameter("task", _TEXT, "path", "a task's id"),
        parameter("offset", _WHOLE | {"default": 0}, "query", "bytes to skip"),
        parameter("attempt", _WHOLE, "query", "which attempt; the last one when absent"),
    ]
    return {
        "/api/v1/jobs": {"get": _question("Every job", job.JobsAnswer), "post": submit},
        "/api/v1/jobs/check": {"post": check},
        "/api/v1/jobs/draft": {"post": draft},
        "/api/v1/jobs/{job}": {"get": _question("One job", job.JobAnswer, one, _NO_JOB)},
        "/api/v1/jobs/{job}/draft": {"get": _question("What would be typed to get this job", Draft, one, _NO_JOB)},
        "/api/v1/jobs/{job}/files": {"get": _question("The model and arrays of a job", job.FilesAnswer, one, _NO_JOB)},
        "/api/v1/jobs/{job}/cancel": {"post": _order("Cancel a job", job.JobAnswer, one, changed)},
        "/api/v1/jobs/{job}/retry": {
            "post": _order("Run what failed or was cancelled again", job.JobAnswer, [*one, task], changed)
        },
        "/api/v1/tasks/{task}/log": {
            "get": _question("A piece of a task's log", job.LogAnswer, log, {404: "there is no such task"})
        },
    }


def _agent_paths() -> Json:
    one = [parameter("agent", _TEXT, "path", "an agent's id")]
    errors = _READ_ONLY | {404: "there is no such agent"}
    forget = _order("Forget an agent", job.AgentsAnswer, one, errors | {409: "it is running a task"})
    program = operation("The agent as one file that Python runs", {})
    program["responses"]["200"]["content"] = {"application/octet-stream": {}}
    return {
        "/api/v1/agents": {"get": _question("Every agent", job.AgentsAnswer)},
        "/api/v1/agents/{agent}": {
            "patch": _order("Change an agent", job.AgentsAnswer, one, errors, job.AgentChange),
            "delete": forget,
        },
        "/api/v1/backends": {"get": _question("Every backend", job.BackendsAnswer)},
        "/agent.pyz": {"get": program},
    }


def _evaluation_paths() -> Json:
    reports = parameter("reports", _TEXT, "query", "ids, comma-separated", required=True)
    limit = parameter("slo_ns", _WHOLE, "query", "limit of the tail latency, for the best batch that keeps it")
    kind = parameter("format", {"type": "string", "enum": ["json", "csv"], "default": "json"}, "query", "of the answer")
    point = [
        parameter("report", _TEXT, "query", "id of a report", required=True),
        parameter("batch", _WHOLE, "query", "size of the swept dimension", required=True),
    ]
    return {
        "/api/v1/evaluation": {"get": _question("Every report", job.ReportsAnswer)},
        "/api/v1/evaluation/overlay": {
            "get": operation(
                "Reports laid over each other",
                ref(job.EvaluationAnswer),
                [reports, limit, kind],
                _NO_REPORT,
                csv=True,
            )
        },
        "/api/v1/evaluation/point": {"get": _question("One point of a report", job.PointAnswer, point, _NO_REPORT)},
    }


def _question(
    summary: str, kind: type[Any], given: list[Json] | None = None, errors: dict[int, str] | None = None
) -> Json:
    return operation(summary, ref(kind), given, errors)


def _order(
    summary: str,
    kind: type[Any],
    given: list[Json],
    errors: dict[int, str],
    body: type[Any] | None = None,
    status: int = 200,
) -> Json:
    """An operation that changes something, or whose question is too long for an address."""
    content = {"application/json": {"schema": ref(kind)}}
    answers: Json = {str(status): {"description": summary, "content": content}}
    answers |= {str(code): error(meaning) for code, meaning in errors.items()}
    made: Json = {"summary": summary, "parameters": given, "responses": answers}
    if body is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": ref(body)}}}
    return made
