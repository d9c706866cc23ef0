"""Run the dashboard's application in this process, where only the tools reach it through the API."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec

from visualprof.errors import VisualprofError
from visualprof.reader.cache import Cache
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.listing import Listing
from visualprof.reader.logdir.pool import Parser, Pool
from visualprof.reader.logdir.summary import Summary
from visualprof.remote.queue.settings import QueueSettings
from visualprof.server.parse import parse_into_cache
from visualprof.server.routes import ROOT
from visualprof.server.settings import AccessSettings, Settings

if TYPE_CHECKING:
    from flask import Flask

_DECODER = msgspec.json.Decoder()


class StillReading(VisualprofError):
    """The error that the file is still being read; `progress` is between 0 and 1."""

    def __init__(self, error: str, hint: str, progress: float) -> None:
        super().__init__(error, hint)
        self.progress = progress


class Dashboard:
    """Log directories, which are opened at the first request. Writes nothing but the cache.

    Args:
        paths: Folders or files. Links that lead outside of them are not followed.
        cache: Cache of parsed files.
        parser: Parses files; closed together with the dashboard.
    """

    def __init__(self, paths: Sequence[str | Path], cache: Cache, parser: Parser[Summary] | None = None) -> None:
        self._paths, self._cache, self._parser = paths, cache, parser
        self._opening = threading.Lock()
        self._opened: tuple[LogDirectory, Flask] | None = None
        self._resources = contextlib.ExitStack()
        self._closed = False

    def ask(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the API's answer to a request below its root.

        Raises:
            StillReading: The file is still being read.
            VisualprofError: The API answers with an error.
        """
        app = self._open()[1]
        with app.test_client() as client:  # a client per request, because a client belongs to one thread
            response = client.get(f"{ROOT}{path}?{urlencode(query, errors='replace')}")
            body: dict[str, Any] = _DECODER.decode(response.data)
        if response.status_code == 200:
            return body
        error, hint = body["error"], body.get("hint") or ""
        if response.status_code == 503 and body.get("state") != "growing":
            raise StillReading(error, hint, body.get("progress") or 0.0)
        raise VisualprofError(error, hint)

    def listing(self) -> Listing:
        """Return the contents of the log directories."""
        return self._open()[0].listing()

    def close(self) -> None:
        """Stop the processes that parse files."""
        with self._opening:
            self._closed = True
            self._resources.close()

    def _open(self) -> tuple[LogDirectory, Flask]:
        with self._opening:
            if self._closed:
                raise VisualprofError("the server has ended")
            if self._opened is None:
                self._opened = self._look()
            return self._opened

    def _look(self) -> tuple[LogDirectory, Flask]:
        """Open the log directories and scan them once before the first answer."""
        from visualprof.reader.logdir.models import open_model_reader
        from visualprof.server.app import create_app  # half a second of imports

        parser = self._parser or Pool(partial(parse_into_cache, cache=self._cache))
        logdir = LogDirectory(self._paths, parser, self._cache, settle_s=0)
        self._resources.callback(logdir.close)
        logdir.start()
        logdir.rescan()
        models = open_model_reader(self._cache)
        self._resources.callback(models.close)
        # An open queue writes files next to its database, so the queue of the log directory is not opened.
        settings = Settings(
            access=AccessSettings(read_only=True), queue=QueueSettings(data=self._cache.folder / "no-queue")
        )
        return logdir, create_app(logdir, settings, reader=models)
