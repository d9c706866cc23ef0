"""Receive live runs from agents that follow a folder: docs/agent-protocol.md#runs-that-an-agent-follows."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, g

from visualprof.server.api.agent_link import authenticate_agent, current_agent, refuse_browsers
from visualprof.server.followed_runs import AnnouncedRecordings, FollowedRuns, RunCommands, RunUpdate, UploadedRecording
from visualprof.server.routes import Resource, mutation
from visualprof.server.services import Services


class AgentRuns(Resource):
    """The routes for agents that follow a folder."""

    documented = False  # docs/agent-protocol.md describes them

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._followed = FollowedRuns(services.logdir.home)

    def blueprint(self) -> Blueprint:
        """Return the routes as a Flask blueprint."""
        blueprint = super().blueprint()
        blueprint.before_request(self._admit)
        return blueprint

    def _admit(self) -> None:
        refuse_browsers()
        self._job_service.require_writable()
        g.sender = authenticate_agent(self._job_service)

    @mutation("POST", "/agent/runs", needs="agent")
    def update(self, body: RunUpdate) -> RunCommands:
        """Report changes of a run, and return the commands for its agent."""
        return self._followed.update(*current_agent(), body)

    @mutation("POST", "/agent/runs/uploads", needs="agent")
    def begin_uploads(self, body: AnnouncedRecordings) -> dict[str, Any]:
        """Announce recordings of a run, and return where to upload them."""
        return {"files": self._followed.begin_uploads(*current_agent(), body)}

    @mutation("POST", "/agent/runs/finish", needs="agent")
    def finish_upload(self, body: UploadedRecording) -> dict[str, Any]:
        """Move an uploaded recording into its run."""
        self._followed.finish_upload(*current_agent(), body)
        return {}
