"""Drafts: what somebody typed becomes a job, and a job becomes what somebody would type."""

from __future__ import annotations

from visualprof.remote.queue.draft.compose import compose, draft_of
from visualprof.remote.queue.draft.forms import Draft, Drafted
from visualprof.server.remote_service import Remote
from visualprof.server.routes import Resource, change, get


class Drafts(Resource):
    """The routes over the queue of a server."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    @change("POST", "/jobs/draft", refuses={400: "this is no draft"})
    def draft(self, body: Draft) -> Drafted:
        """A complete job of what was typed, with what is wrong with it."""
        return compose(body, self._remote)

    @get("/jobs/<job>/draft", refuses={404: "there is no such job"})
    def template(self, job: str) -> Draft:
        """What would be typed to get this job."""
        request = self._remote.needed("no job was ever submitted here").jobs.one(job).request
        return draft_of(request, self._remote.agents())
