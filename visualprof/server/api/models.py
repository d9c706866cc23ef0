"""Models as graphs: models in the log directories and uploaded models, with measured times and comparisons."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from itertools import chain
from pathlib import Path

import msgspec

from visualprof.errors import BadParameter, NotFound, NotReady, SourceError, UnknownFormat, VisualprofError
from visualprof.messages import msg
from visualprof.reader.child import MODEL_LIMITS
from visualprof.reader.foreign_files import unknown_format
from visualprof.reader.graph import ModelGraph
from visualprof.reader.logdir.scan import LogFile
from visualprof.reader.models import model_suffixes, recognize_model
from visualprof.reader.source import Source
from visualprof.server.api.runs import SkippedFile
from visualprof.server.identity import current_principal
from visualprof.server.services import Services
from visualprof.server.user_slots import UserSlots

MAX_UPLOAD_BYTES = 2 << 30
CHUNK_BYTES = 1 << 20
WAIT_S = 1.0  # wait for a model that is being read; most are ready by then
MAX_UPLOADS_PER_USER = 2  # of a user of a server with accounts, at the same time
MAX_UPLOADS = 4  # concurrent uploads; each occupies a server thread until its model is read
UPLOAD_WAIT_S = MODEL_LIMITS.timeout_s + 10


class ModelEntry(msgspec.Struct, kw_only=True):
    """A model file.

    Attributes:
        id: Id of the model.
        name: Name of the file.
        file: Path of the file in the log directories.
        format: Format of the model.
        run: Id of the run in the same folder, or null unless there is exactly one.
        size_bytes: Size of the file.
        modified_ns: Time of the last change.
        uploaded: Whether the model was uploaded.
    """

    id: str
    name: str
    file: str
    format: str
    run: str | None
    size_bytes: int
    modified_ns: int
    uploaded: bool


Entry = tuple[ModelEntry, Path]


class Models:
    """The models in the log directories and the uploaded models. The format of each file version is recognized once."""

    def __init__(self, services: Services) -> None:
        self._logdir, self._visible, self._reader = services.logdir, services.visible, services.reader
        self._heads: dict[tuple[str, int, int], str] = {}
        self._listed: tuple[int, list[Entry], list[SkippedFile]] = (-1, [], [])
        self._uploads: dict[tuple[str, str | None], tuple[Entry, str | None]] = {}  # by id and owner
        self._folder = ""
        self._sources: list[tuple[Callable[[str], Iterable[Entry]], Callable[[Path], None]]] = []
        self._uploading = threading.BoundedSemaphore(MAX_UPLOADS)
        self._user_slots = UserSlots(MAX_UPLOADS_PER_USER)
        self._lock = threading.Lock()

    def add_source(self, list_models: Callable[[str], Iterable[Entry]], fetch: Callable[[Path], None]) -> None:
        """Add a source of models that is queried at every listing.

        Args:
            list_models: Returns the latest models for "", or the model with the given id, which may be older.
            fetch: Downloads a model to its path.
        """
        self._sources.append((list_models, fetch))

    def listing(self) -> tuple[list[Entry], list[SkippedFile]]:
        """Return all models, uploaded models first, and the files that look like models but cannot be read."""
        stored = {model.id: (model, path) for list_models, _ in self._sources for model, path in list_models("")}
        entries, skipped = self._in_folders()
        viewer, sees = current_principal().viewer, self._visible.can_see
        if viewer is not None:
            entries, skipped = (
                [entry for entry in entries if sees(entry[0].id) or (entry[0].run and sees(entry[0].run))],
                [],
            )
        uploads = [entry for entry, owner in self._uploads.values() if viewer in (None, owner)]
        return [*uploads, *stored.values(), *entries], skipped

    def _in_folders(self) -> tuple[list[Entry], list[SkippedFile]]:
        """Return the models of the log directories.

        They are scanned again when files change or a file could not be opened.
        """
        revision, entries, skipped = self._listed
        if revision == self._logdir.files_revision:
            return entries, skipped
        revision, entries, skipped = self._logdir.files_revision, list[Entry](), list[SkippedFile]()
        spans = [(s.log_file, r.id) for r in self._logdir.listing().runs for w in r.workers for s in w.spans]
        folders: dict[tuple[str, str], set[str]] = {}
        for file, run in spans:
            folders.setdefault((file.root.prefix, file.folder), set()).add(run)
        files = {f.path: run for f, run in spans}
        candidates = list(self._candidates())
        cached = self._heads
        self._heads = {key: cached[key] for key in map(_version, candidates) if key in cached}
        for file in candidates:
            try:
                format = self._format(file)
            except VisualprofError as error:
                skipped.append(SkippedFile(file.file, error.error, error.hint or None))
                revision = revision if isinstance(error, UnknownFormat) else -1
                continue
            if format:
                neighbors = folders.get((file.root.prefix, file.folder), ())
                run = files.get(file.path) or (next(iter(neighbors)) if len(neighbors) == 1 else None)
                model = ModelEntry(
                    id=file.file,
                    name=file.name,
                    file=file.file,
                    format=format,
                    run=run,
                    size_bytes=file.version.size,
                    modified_ns=file.version.mtime_ns,
                    uploaded=False,
                )
                entries.append((model, Path(file.path)))
        self._listed = revision, entries, skipped
        return entries, skipped

    def graph(self, name: str) -> ModelGraph:
        """Return the graph of a model by its id.

        Raises:
            NotFound: There is no such model.
            FormatError: The file is not a valid model.
            NotReady: The model is being read. Ask again.
        """
        older = (entry for list_models, _ in self._sources if name.startswith("upload:") for entry in list_models(name))
        entry = next((entry for entry in chain(self.listing()[0], older) if entry[0].id == name), None)
        if entry is None:
            raise NotFound(
                msg("server.there_no_model", f"there is no model {name!r}"),
                msg("server.ids_listed_api_v1_models", "ids are listed by /api/v1/models"),
            )
        if entry[0].uploaded and not entry[1].is_file():
            for _, fetch in self._sources:
                fetch(entry[1])
        if not entry[0].uploaded:
            self._logdir.ensure_local(str(entry[1]))
        return self.read(entry, WAIT_S)

    def read(self, entry: Entry, wait_s: float) -> ModelGraph:
        """Return the graph of a model, like `ModelReader.graph`."""
        model, path = entry
        return self._reader.graph(path, model.name, (model.modified_ns, model.size_bytes), wait_s)

    def save_upload(self, name: str, read: Callable[[int], bytes]) -> ModelEntry:
        """Store an uploaded model until the server ends.

        Raises:
            BadParameter: The upload is too large.
            FormatError: The model cannot be read and is not stored.
            TooManyUploads: Other uploads occupy all slots.
        """
        user = current_principal().user
        with self._user_slots.hold(user) if user is not None else nullcontext():
            return self._upload_in_slot(name, read)

    def _upload_in_slot(self, name: str, read: Callable[[int], bytes]) -> ModelEntry:
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
        """Return the total size of the models that a user uploaded for viewing."""
        return sum(entry[0].size_bytes for entry, owner in list(self._uploads.values()) if owner == user)

    def _save_upload(self, name: str, read: Callable[[int], bytes]) -> ModelEntry:
        with self._lock:
            if not self._folder:
                self._folder = tempfile.mkdtemp(prefix="visualprof-models-")
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        file_name = Path(name.replace("\\", "/")).name[:200] or "model"
        descriptor, path = tempfile.mkstemp(dir=self._folder, suffix=Path(file_name).suffix[:16])
        digest, size = hashlib.blake2b(digest_size=8), 0
        try:
            with os.fdopen(descriptor, "wb") as file:
                while chunk := read(CHUNK_BYTES):
                    size += len(chunk)
                    if size > MAX_UPLOAD_BYTES:
                        raise UploadTooLarge(
                            msg("server.over_gib", f"{file_name} is over {MAX_UPLOAD_BYTES >> 30} GiB"),
                            msg("server.put_into_log_directory", "put it into the log directory instead"),
                        )
                    digest.update(chunk)
                    file.write(chunk)
            changed_ns = Path(path).stat().st_mtime_ns
            model = self._reader.graph(Path(path), file_name, (changed_ns, size), UPLOAD_WAIT_S)
        except BaseException:  # including a disconnected client
            Path(path).unlink(missing_ok=True)
            raise
        entry = uploaded_entry(f"upload:{digest.hexdigest()}", file_name, model.format, size, changed_ns)
        with self._lock:
            self._uploads[entry.id, current_principal().user] = (entry, Path(path)), current_principal().user
        return entry

    def _candidates(self) -> Iterable[LogFile]:
        files = self._logdir.files(lambda name: name.lower().endswith(model_suffixes()))
        return (file for file in files if file.version.size)

    def _format(self, file: LogFile) -> str:
        """Return the model format of a file, or "" if the file is not a model.

        Raises:
            UnknownFormat: The file's name says that it is a model, but the content is not.
            SourceError: The file cannot be opened.
        """
        if file.verdict:
            return file.verdict.format if file.verdict.kind == "other" else ""
        key, heads = _version(file), self._heads
        if key not in heads:
            try:
                format = recognize_model(Source(file.path))
            except SourceError:
                if file.name.lower().endswith(model_suffixes(shared=False)):
                    raise
                format = None
            heads[key] = format.name if format else ""
        if not heads[key] and file.name.lower().endswith(model_suffixes(shared=False)):
            raise unknown_format(
                file.name,
                Source(file.path).head(),
                msg("server.no_model_format_recognises", f"{file.name}: no model format recognizes the content"),
                msg("server.cut_while_being_copied", "was it cut while being copied?"),
            )
        return heads[key]


class TooManyUploads(NotReady):
    """All upload slots are in use."""


class UploadTooLarge(BadParameter, status=413, docs_page="security#uploads"):
    """The upload exceeds the size limit."""


def _version(file: LogFile) -> tuple[str, int, int]:
    return file.path, file.version.mtime_ns, file.version.size


def uploaded_entry(name: str, file: str, format: str, size: int, modified_ns: int) -> ModelEntry:
    """Return the entry of a model outside of the log directories. `name` is its id."""
    return ModelEntry(
        id=name,
        name=file,
        file=file,
        format=format,
        run=None,
        size_bytes=size,
        modified_ns=modified_ns,
        uploaded=True,
    )
