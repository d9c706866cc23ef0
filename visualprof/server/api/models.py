"""Models: those in the log directories and uploaded ones, as graphs, with measured time, compared."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated

import msgspec
from flask import request
from msgspec import Meta

from visualprof.errors import BadParameter, Forbidden, NotFound, NotReady, SourceError, UnknownFormat, VisualprofError
from visualprof.messages import msg
from visualprof.reader.child import MODEL_LIMITS
from visualprof.reader.graph import ModelGraph
from visualprof.reader.logdir.directory import LogDirectory
from visualprof.reader.logdir.models import ModelReader
from visualprof.reader.logdir.scan import LogFile
from visualprof.reader.models import model_suffixes, recognize_model
from visualprof.reader.source import Source
from visualprof.server.api.runs import SkippedFile
from visualprof.server.api.spans import check_range, load_trace
from visualprof.server.identity import current_principal
from visualprof.server.routes import READ_ONLY_ERROR, SPAN_ERRORS, Query, Resource, SpanQuery, get, mutation
from visualprof.server.visible import Visible
from visualprof.views import graph
from visualprof.views.measure.graph_compare import GraphComparison, compare_graphs

MAX_UPLOAD_BYTES = 2 << 30
CHUNK_BYTES = 1 << 20
WAIT_S = 1.0  # for a model that is being read: most are read by then
MAX_UPLOADS = 4  # at once: each takes a thread of the server until its model is read
UPLOAD_WAIT_S = MODEL_LIMITS.timeout_s + 10


class ModelEntry(msgspec.Struct, kw_only=True):
    """A model file. run: id of the run in the same folder, where that has one only."""

    id: str
    name: str
    file: str
    format: str
    run: str | None
    size_bytes: int
    modified_ns: int
    uploaded: bool


Entry = tuple[ModelEntry, Path]


class ModelsAnswer(msgspec.Struct):
    """Models of the log directories and uploaded ones."""

    models: list[ModelEntry]
    skipped: list[SkippedFile]


class UploadQuery(Query):
    """An upload."""

    name: Annotated[str, Meta(description="of the file")]


class ModelQuery(Query):
    """A model."""

    model: Annotated[str, Meta(description="id of a model")]
    hint = msg("server.ids_listed_api_v1_models", "ids are listed by /api/v1/models")


class NodeQuery(ModelQuery):
    """A node of a model."""

    node: Annotated[int, Meta(ge=0, description="number of a node")]


class ModelSpanQuery(SpanQuery, kw_only=True):
    """A model and a span."""

    model: Annotated[str, Meta(description="id of a model")]


class ComparisonQuery(ModelQuery):
    """Two models."""

    other: Annotated[str, Meta(description="id of the model to compare with")]


class Models:
    """Finds and keeps models. Heads are looked at once for each version of a file."""

    def __init__(self, logdir: LogDirectory, visible: Visible, reader: ModelReader) -> None:
        self._logdir, self._visible = logdir, visible
        self._reader = reader
        self._heads: dict[tuple[str, int, int], str] = {}
        self._found: tuple[int, list[Entry], list[SkippedFile]] = (-1, [], [])
        self._uploads: dict[tuple[str, str | None], tuple[Entry, str | None]] = {}  # by id and owner
        self._folder = ""
        self._others: list[tuple[Callable[[str], Iterable[Entry]], Callable[[Path], None]]] = []
        self._uploading = threading.BoundedSemaphore(MAX_UPLOADS)
        self._lock = threading.Lock()

    def add_source(self, others: Callable[[str], Iterable[Entry]], fetch: Callable[[Path], None]) -> None:
        """Adds models that somebody else keeps, asked for at every listing.

        others: the latest of them, or that of an id, which may be an older one. fetch: brings one to its path.
        """
        self._others.append((others, fetch))

    def listing(self) -> tuple[list[Entry], list[SkippedFile]]:
        """All models, uploaded ones first, and files that should be models and are none."""
        kept = {model.id: (model, path) for others, _ in self._others for model, path in others("")}
        entries, skipped = self._in_folders()
        viewer, sees = current_principal().viewer, self._visible.can_see
        if viewer is not None:
            entries, skipped = (
                [entry for entry in entries if sees(entry[0].id) or (entry[0].run and sees(entry[0].run))],
                [],
            )
        uploads = [entry for entry, owner in self._uploads.values() if viewer in (None, owner)]
        return [*uploads, *kept.values(), *entries], skipped

    def _in_folders(self) -> tuple[list[Entry], list[SkippedFile]]:
        """Those of the log directories; looked for again when files change, or one could not be opened."""
        revision, entries, skipped = self._found
        if revision == self._logdir.files_revision:
            return entries, skipped
        revision, entries, skipped = self._logdir.files_revision, list[Entry](), list[SkippedFile]()
        spans = [(s.log_file, r.id) for r in self._logdir.listing().runs for w in r.workers for s in w.spans]
        folders: dict[tuple[str, str], set[str]] = {}
        for file, run in spans:
            folders.setdefault((file.root.prefix, file.folder), set()).add(run)
        files = {f.path: run for f, run in spans}
        candidates = list(self._candidates())
        known = self._heads
        self._heads = {key: known[key] for key in map(_version, candidates) if key in known}
        for file in candidates:
            try:
                format = self._format(file)
            except VisualprofError as error:
                skipped.append(SkippedFile(file.file, error.error, error.hint or None))
                revision = revision if isinstance(error, UnknownFormat) else -1
                continue
            if format:
                around = folders.get((file.root.prefix, file.folder), ())
                run = files.get(file.path) or (next(iter(around)) if len(around) == 1 else None)
                size, modified_ns = file.version.size, file.version.mtime_ns
                model = ModelEntry(
                    id=file.file,
                    name=file.name,
                    file=file.file,
                    format=format,
                    run=run,
                    size_bytes=size,
                    modified_ns=modified_ns,
                    uploaded=False,
                )
                entries.append((model, Path(file.path)))
        self._found = revision, entries, skipped
        return entries, skipped

    def graph(self, name: str) -> ModelGraph:
        """The graph of a model by its id.

        Raises: NotFound, FormatError. BeingRead: ask again.
        """
        older = (entry for others, _ in self._others if name.startswith("upload:") for entry in others(name))
        found = next((entry for entry in chain(self.listing()[0], older) if entry[0].id == name), None)
        if found is None:
            raise NotFound(
                msg("server.there_no_model", f"there is no model {name!r}"),
                msg("server.ids_listed_api_v1_models", "ids are listed by /api/v1/models"),
            )
        if found[0].uploaded and not found[1].is_file():
            for _, fetch in self._others:
                fetch(found[1])
        if not found[0].uploaded:
            self._logdir.ensure_local(str(found[1]))
        return self.read(found, WAIT_S)

    def read(self, entry: Entry, wait_s: float) -> ModelGraph:
        """The graph of a model, as `ModelReader.graph`."""
        model, path = entry
        return self._reader.graph(path, model.name, (model.modified_ns, model.size_bytes), wait_s)

    def save_upload(self, name: str, read: Callable[[int], bytes]) -> ModelEntry:
        """Keep an uploaded model until the server ends.

        Raises: BadParameter: too large. FormatError: it cannot be read; nothing is kept. Busy.
        """
        if not self._uploading.acquire(blocking=False):
            raise TooManyUploads(
                msg("server.other_models_being_uploaded", f"{MAX_UPLOADS} other models are being uploaded"),
                msg("server.try_again_moment", "try again in a moment"),
            )
        try:
            return self._save_upload(name, read)
        finally:
            self._uploading.release()

    def uploaded_bytes(self, user: str | None) -> int:
        """Of the models that somebody uploaded to be shown."""
        return sum(entry[0].size_bytes for entry, owner in list(self._uploads.values()) if owner == user)

    def _save_upload(self, name: str, read: Callable[[int], bytes]) -> ModelEntry:
        with self._lock:
            if not self._folder:
                self._folder = tempfile.mkdtemp(prefix="visualprof-models-")
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        safe = Path(name.replace("\\", "/")).name[:200] or "model"
        handle, path = tempfile.mkstemp(dir=self._folder, suffix=Path(safe).suffix[:16])
        digest, size = hashlib.blake2b(digest_size=8), 0
        try:
            with os.fdopen(handle, "wb") as file:
                while piece := read(CHUNK_BYTES):
                    size += len(piece)
                    if size > MAX_UPLOAD_BYTES:
                        raise UploadTooLarge(
                            msg("server.over_gib", f"{safe} is over {MAX_UPLOAD_BYTES >> 30} GiB"),
                            msg("server.put_into_log_directory", "put it into the log directory instead"),
                        )
                    digest.update(piece)
                    file.write(piece)
            changed_ns = Path(path).stat().st_mtime_ns
            model = self._reader.graph(Path(path), safe, (changed_ns, size), UPLOAD_WAIT_S)
        except BaseException:  # the sender may also have gone away
            Path(path).unlink(missing_ok=True)
            raise
        entry = uploaded_entry(f"upload:{digest.hexdigest()}", safe, model.format, size, changed_ns)
        with self._lock:
            self._uploads[entry.id, current_principal().user] = (entry, Path(path)), current_principal().user
        return entry

    def _candidates(self) -> Iterable[LogFile]:
        files = self._logdir.files(lambda name: name.lower().endswith(model_suffixes()))
        return (file for file in files if file.version.size)

    def _format(self, file: LogFile) -> str:
        """Model format of a file, "" when it is none.

        Raises: UnknownFormat: by its name it should be one. SourceError.
        """
        if file.verdict:
            return file.verdict.format if file.verdict.kind == "other" else ""
        key, heads = _version(file), self._heads
        if key not in heads:
            try:
                chosen = recognize_model(Source(file.path))
            except SourceError:
                if file.name.lower().endswith(model_suffixes(shared=False)):
                    raise
                chosen = None
            heads[key] = chosen.name if chosen else ""
        if not heads[key] and file.name.lower().endswith(model_suffixes(shared=False)):
            raise UnknownFormat(
                msg("server.no_model_format_recognises", f"{file.name}: no model format recognizes the content"),
                msg("server.cut_while_being_copied", "was it cut while being copied?"),
            )
        return heads[key]


class TooManyUploads(NotReady):
    """Every thread that may wait for an uploaded model does."""


class UploadTooLarge(BadParameter):
    """An upload beyond the limit."""

    status = 413


class Graphs(Resource):
    """The routes over one log directory."""

    def __init__(self, logdir: LogDirectory, visible: Visible, models: Models, read_only: bool) -> None:
        self._logdir, self._visible, self._models, self._read_only = logdir, visible, models, read_only

    @get("/models", needs="link")
    def models(self) -> ModelsAnswer:
        """Every model."""
        entries, skipped = self._models.listing()
        return ModelsAnswer([model for model, _ in entries], skipped)

    @mutation(
        "POST", "/models", status=201, content="application/octet-stream",
        errors={**READ_ONLY_ERROR, 413: "too large", 429: "a quota is used up", 422: SPAN_ERRORS[422],
                503: "too many at once"},
    )  # fmt: skip
    def upload_model(self, query: UploadQuery) -> ModelEntry:
        """Keep an uploaded model."""
        if self._read_only:
            raise Forbidden(
                msg("server.server_read_only_2", "this server is read-only"),
                msg("server.put_file_into_log", "put the file into the log directory"),
            )
        self._visible.check_upload_quota(
            (request.content_length or 0) + self._models.uploaded_bytes(current_principal().user)
        )
        return self._models.save_upload(query.name, request.stream.read)

    @get("/graph", errors=SPAN_ERRORS, needs="link")
    def graph(self, query: ModelQuery) -> graph.Graph:
        """A model as a graph."""
        return graph.drawn(self._models.graph(query.model), query.model)

    @get("/graph/node", errors=SPAN_ERRORS, needs="link")
    def node(self, query: NodeQuery) -> graph.NodeDetails:
        """One node."""
        model = self._models.graph(query.model)
        return graph.node_details(
            model, check_range("node", query.node, len(graph.cached_hierarchy(model).drawn_nodes) - 1)
        )

    @get("/graph/profile", errors=SPAN_ERRORS, needs="link")
    def profile(self, query: ModelSpanQuery) -> graph.GraphProfile:
        """Measured time on the nodes."""
        model = self._models.graph(query.model)
        span = self._visible.listing().find(query.run, query.worker, query.span)
        return graph.measured(model, load_trace(self._logdir, span))

    @get("/graph/compare", errors=SPAN_ERRORS, needs="link")
    def comparison(self, query: ComparisonQuery) -> GraphComparison:
        """Two models compared."""
        return compare_graphs(self._models.graph(query.model), self._models.graph(query.other))


def _version(file: LogFile) -> tuple[str, int, int]:
    return file.path, file.version.mtime_ns, file.version.size


def uploaded_entry(name: str, file: str, format: str, size: int, modified_ns: int) -> ModelEntry:
    """A model of no log directory. name: its id."""
    return ModelEntry(
        id=name, name=file, file=file, format=format, run=None, size_bytes=size, modified_ns=modified_ns, uploaded=True
    )
