"""Whether the page may act."""

from __future__ import annotations

import msgspec

from visualprof.server import guard
from visualprof.server.routes import Resource, get


class SessionAnswer(msgspec.Struct):
    """trusted: whoever asks has the session's token, or none is needed."""

    trusted: bool


class Session(Resource):
    """The route by which the page tries a token."""

    @get("/session")
    def session(self) -> SessionAnswer:
        """May whoever asks act?"""
        return SessionAnswer(guard.trusted())
