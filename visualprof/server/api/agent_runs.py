"""What agents tell of live runs in a folder of their machine: docs/remote.md#runs-that-an-agent-follows."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, g

from visualprof.reader.logdir.scan import Root
from visualprof.server.api.agent_link import authenticate_agent, current_agent, refuse_browsers
from visualprof.server.followed_runs import AnnouncedRecordings, FollowedRuns, RunCommands, RunUpdate, UploadedRecording
from visualprof.server.job_service import JobService
from visualprof.server.routes import Resource, mutation


class AgentRuns(Resource):
    """The routes for agents that follow a folder."""

    def __init__(self, job_service: JobService, root: Root) -> None:
        self._job_service, self._followed = job_service, FollowedRuns(root)

    def blueprint(self) -> Blueprint:
        """The routes for an application."""
        made = super().blueprint()
        made.before_request(self._admit)
        return made

    def _admit(self) -> None:
        refuse_browsers()
        self._job_service.require_writable()
        g.sender = authenticate_agent(self._job_service)

    @mutation("POST", "/agent/runs", needs="agent")
    def update(self, body: RunUpdate) -> RunCommands:
        """Tell what is new in a run; answers what is asked of it."""
        return self._followed.update(*current_agent(), body)

    @mutation("POST", "/agent/runs/uploads", needs="agent")
    def begin_uploads(self, body: AnnouncedRecordings) -> dict[str, Any]:
        """Announce recordings of a run; answers where they go."""
        return {"files": self._followed.begin_uploads(*current_agent(), body)}

    @mutation("POST", "/agent/runs/finish", needs="agent")
    def finish_upload(self, body: UploadedRecording) -> dict[str, Any]:
        """Put a recording that was sent into its run."""
        self._followed.finish_upload(*current_agent(), body)
        return {}
