"""Drafts: what somebody typed becomes a job, and a job becomes what somebody would type."""

from __future__ import annotations

from flask import Blueprint, Response

from visualprof.remote.queue.draft.compose import compose, draft_of
from visualprof.remote.queue.draft.forms import Draft
from visualprof.server.answers import answer
from visualprof.server.api.bodies import decoded
from visualprof.server.remote_service import Remote


def blueprint(remote: Remote) -> Blueprint:
    """The routes."""
    routes = Blueprint("drafts", __name__, url_prefix="/api/v1")

    @routes.post("/jobs/draft")
    def draft() -> Response:
        return answer(compose(decoded(Draft), remote))

    @routes.get("/jobs/<job>/draft")
    def template(job: str) -> Response:
        request = remote.needed("no job was ever submitted here").jobs.one(job).request
        return answer(draft_of(request, remote.agents()))

    return routes
