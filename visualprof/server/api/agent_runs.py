"""What agents tell of live runs in a folder of their machine: docs/remote.md#runs-that-an-agent-follows."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, g

from visualprof.reader.logdir.scan import Root
from visualprof.server.api.agent_link import refuse_browsers, sender_of, sending
from visualprof.server.followed import AnnouncedFiles, ArrivedFile, AskedOfRun, Followed, SaidOfRun
from visualprof.server.remote_service import JobService
from visualprof.server.routes import Resource, change


class AgentRuns(Resource):
    """The routes for agents that follow a folder."""

    def __init__(self, remote: JobService, root: Root) -> None:
        self._remote, self._followed = remote, Followed(root)

    def blueprint(self) -> Blueprint:
        """The routes for an application."""
        made = super().blueprint()
        made.before_request(self._admit)
        return made

    def _admit(self) -> None:
        refuse_browsers()
        self._remote.require_writable()
        g.sender = sender_of(self._remote)

    @change("POST", "/agent/runs", needs="agent")
    def hear(self, body: SaidOfRun) -> AskedOfRun:
        """Tell what is new in a run; answers what is asked of it."""
        return self._followed.hear(*sending(), body)

    @change("POST", "/agent/runs/uploads", needs="agent")
    def announce(self, body: AnnouncedFiles) -> dict[str, Any]:
        """Announce recordings of a run; answers where they go."""
        return {"files": self._followed.announce(*sending(), body)}

    @change("POST", "/agent/runs/finish", needs="agent")
    def finish(self, body: ArrivedFile) -> dict[str, Any]:
        """Put a recording that was sent into its run."""
        self._followed.finish(*sending(), body)
        return {}
