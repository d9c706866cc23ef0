"""Models: those in the log directories and uploaded ones, as graphs, with measured time, compared."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from flask import Blueprint, Response, request

from visualprof.errors import BadParameter, Forbidden, NotFound, SourceError, UnknownFormat, VisualprofError
from visualprof.reader.graph import ModelGraph
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.scan import LogFile
from visualprof.reader.models import model_suffixes, read_model, recognise_model
from visualprof.reader.source import Source
from visualprof.server.answers import answer
from visualprof.server.api import schema
from visualprof.server.api.spans import columns_of, number, required
from visualprof.views import graph

MAX_UPLOAD = 2 << 30
KEPT = 8
CHUNK = 1 << 20


@dataclass(frozen=True)
class Entry:
    """A model file. run: id of the run in the same folder, "" without one."""

    id: str
    name: str
    path: Path
    format: str
    run: str
    size: int
    modified_ns: int
    uploaded: bool = False


class Models:
    """Finds, keeps and reads models. Heads are looked at once for each version of a file."""

    def __init__(self, logdir: LogDirectory) -> None:
        self._logdir = logdir
        self._heads: dict[tuple[str, int, int], str] = {}
        self._graphs: OrderedDict[tuple[str, int], ModelGraph] = OrderedDict()
        self._uploads: dict[str, Entry] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._reading: dict[tuple[str, int], threading.Lock] = {}
        self._others: list[Callable[[], Iterable[Entry]]] = []
        self._lock = threading.Lock()

    def also(self, others: Callable[[], Iterable[Entry]]) -> None:
        """Adds models that somebody else keeps; asked for at every listing."""
        self._others.append(others)

    def listing(self) -> tuple[list[Entry], list[schema.SkippedFile]]:
        """All models, uploaded ones first, and files that should be models and are none."""
        spans = [(s.found, r.id) for r in self._logdir.listing().runs for w in r.workers for s in w.spans]
        folders = {(f.root.prefix, f.folder): run for f, run in spans}
        files = {f.path: run for f, run in spans}
        kept = {entry.id: entry for others in self._others for entry in others()}
        found, skipped = [*self._uploads.values(), *kept.values()], list[schema.SkippedFile]()
        for each in self._candidates():
            try:
                kind = self._format(each)
            except VisualprofError as error:
                skipped.append(schema.SkippedFile(each.file, error.error, error.hint or None))
                continue
            if kind:
                run = files.get(each.path) or folders.get((each.root.prefix, each.folder), "")
                found.append(
                    Entry(each.file, each.name, Path(each.path), kind, run, each.version.size, each.version.mtime_ns)
                )
        return found, skipped

    def graph(self, name: str) -> ModelGraph:
        """The graph of a model by its id.

        Raises: NotFound, FormatError.
        """
        entry = next((e for e in self.listing()[0] if e.id == name), None)
        if entry is None:
            raise NotFound(f"there is no model {name!r}", "ids are listed by /api/v1/models")
        key = (str(entry.path), entry.modified_ns)
        with self._lock:
            reading = self._reading.setdefault(key, threading.Lock())
        try:
            with reading:  # one reader a model; other models are served meanwhile
                model = self._graphs.get(key) or _named(read_model(entry.path), entry)
                with self._lock:
                    self._graphs[key] = model
                    self._graphs.move_to_end(key)
                    while len(self._graphs) > KEPT:
                        self._graphs.popitem(last=False)
        finally:
            with self._lock:
                self._reading.pop(key, None)
        return model

    def keep(self, name: str, read: Callable[[int], bytes]) -> Entry:
        """Keeps an uploaded model until the server ends.

        Raises: BadParameter: too large. FormatError: it cannot be read; nothing is kept.
        """
        with self._lock:
            self._folder = self._folder or tempfile.TemporaryDirectory(prefix="visualprof-models-")
        safe = Path(name.replace("\\", "/")).name[:200] or "model"
        handle, path = tempfile.mkstemp(dir=self._folder.name, suffix=Path(safe).suffix[:16])
        digest, size = hashlib.blake2b(digest_size=8), 0
        try:
            with os.fdopen(handle, "wb") as file:
                while piece := read(CHUNK):
                    size += len(piece)
                    if size > MAX_UPLOAD:
                        raise TooLarge(
                            f"{safe} is over {MAX_UPLOAD >> 30} GiB", "put it into the log directory instead"
                        )
                    digest.update(piece)
                    file.write(piece)
            model = read_model(path)
        except BaseException as error:  # the sender may also have gone away
            Path(path).unlink(missing_ok=True)
            if isinstance(error, VisualprofError):
                error.error = error.error.replace(Path(path).name, safe)
            raise
        entry = Entry(
            f"upload:{digest.hexdigest()}",
            safe,
            Path(path),
            model.format,
            "",
            size,
            Path(path).stat().st_mtime_ns,
            uploaded=True,
        )
        with self._lock:
            self._uploads[entry.id] = entry
        return entry

    def _candidates(self) -> Iterable[LogFile]:
        found = self._logdir.files(lambda name: name.lower().endswith(model_suffixes()))
        return (each for each in found if each.version.size)

    def _format(self, found: LogFile) -> str:
        """Model format of a file, "" when it is none.

        Raises: UnknownFormat: by its name it should be one. SourceError.
        """
        key = (found.path, found.version.mtime_ns, found.version.size)
        if key not in self._heads:
            try:
                chosen = recognise_model(Source(found.path))
            except SourceError:
                if found.name.lower().endswith(model_suffixes(shared=False)):
                    raise
                chosen = None
            self._heads[key] = chosen.name if chosen else ""
        if not self._heads[key] and found.name.lower().endswith(model_suffixes(shared=False)):
            raise UnknownFormat(
                f"{found.name}: no model format recognises its content", "was it cut while being copied?"
            )
        return self._heads[key]


class TooLarge(BadParameter):
    """An upload beyond the limit."""

    status = 413


def blueprint(logdir: LogDirectory, models: Models, read_only: bool) -> Blueprint:
    """The routes over one log directory."""
    routes = Blueprint("models", __name__, url_prefix="/api/v1")

    @routes.get("/models")
    def listing() -> Response:
        found, skipped = models.listing()
        return answer(schema.ModelsAnswer([_shown(e) for e in found], skipped))

    @routes.post("/models")
    def upload() -> Response:
        if read_only:
            raise Forbidden("this server is read-only", "put the file into the log directory")
        return answer(_shown(models.keep(required("name"), request.stream.read)), 201)

    @routes.get("/graph")
    def whole() -> Response:
        name = required("model")
        body = graph.columns(models.graph(name))
        return answer(body | {"model": {"id": name, **cast("dict[str, object]", body["model"])}})

    @routes.get("/graph/node")
    def node() -> Response:
        model = models.graph(required("model"))
        count = len(graph.hierarchy_of(model).shown)
        return answer(graph.node_details(model, number("node", request.args.get("node", ""), 0, count - 1)))

    @routes.get("/graph/profile")
    def profile() -> Response:
        model = models.graph(required("model"))
        span = logdir.listing().find(required("run"), request.args.get("worker", ""), request.args.get("span", ""))
        return answer(graph.measured(model, columns_of(logdir, span)))

    @routes.get("/graph/compare")
    def compare() -> Response:
        return answer(graph.compare(models.graph(required("model")), models.graph(required("other"))))

    return routes


def _named(model: ModelGraph, entry: Entry) -> ModelGraph:
    """A model without a name of its own has that of its file, which of an uploaded one is none to show."""
    return replace(model, name=entry.name) if model.name == entry.path.name else model


def _shown(entry: Entry) -> schema.ModelEntry:
    return schema.ModelEntry(
        entry.id,
        entry.name,
        entry.id if not entry.uploaded else entry.name,
        entry.format,
        entry.run or None,
        entry.size,
        entry.modified_ns,
        entry.uploaded,
    )
