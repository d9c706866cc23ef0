"""Uploads: models and arrays for jobs; the models are also on the Graph page."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from flask import request
from msgspec import Meta

from visualprof.errors import NotFound, VisualprofError
from visualprof.messages import msg
from visualprof.remote.protocol import ModelRef
from visualprof.remote.queue.check.external import External
from visualprof.remote.queue.check.inspect import InspectedArray, InspectedPart, Tensor
from visualprof.remote.queue.service import JobService
from visualprof.remote.queue.store.files import PartUpload
from visualprof.remote.queue.uploads import (
    UploadedFile,
    begin_upload,
    cancel_upload,
    ensure_local,
    finish_upload,
    graph_id,
    resume_upload,
    reuse_upload,
    save_upload,
    stored_models,
    stored_uploads,
)
from visualprof.server.answers import row
from visualprof.server.api.models import Entry, Models, UploadQuery, uploaded
from visualprof.server.identity import who
from visualprof.server.routes import READ_ONLY, Resource, change, get
from visualprof.server.visible import Visible

_log = logging.getLogger(__name__)

_DIRECT = {
    **READ_ONLY,
    404: msg("server.upload_not_awaited", "this upload is not awaited"),
    409: msg("server.files_come_through_server", "files come through this server"),
    503: msg("server.store_not_answer", "the store does not answer"),
}


class UploadedModel(msgspec.Struct):
    """What the file of a model says. dims: named dimensions with a size to start from. backends: that load it.

    fixed_inputs: whether it says names, types and dimensions of its inputs for good; else a job may change them.
    external: files beside it in which its weights lie; a job names them as parts of the model.
    """

    format: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    dims: dict[str, int]
    backends: list[str]
    warnings: list[str]
    fixed_inputs: bool
    external: list[External]


class UploadAnswer(msgspec.Struct):
    """A file that was kept; its blob is named by jobs. graph: id of a model for the Graph page, else null.

    kind: a part has weights of a model. others: further files of the same upload, where it was an archive: the other
    arrays of an .npz, the parts of a model.
    """

    blob: str
    name: str
    size_bytes: int
    kind: Literal["model", "array", "part"]
    model: UploadedModel | None
    array: InspectedArray | None
    graph: str | None
    others: list[UploadAnswer] = []


class JobUploadQuery(UploadQuery, kw_only=True):
    """A file for a job."""

    part: Annotated[bool, Meta(description="it has weights of a model: nothing is looked for in it")] = False


class KnownFile(msgspec.Struct):
    """A file for a job that may be here. blob: its sha256. part: it has weights of a model."""

    blob: str
    name: str
    part: bool = False


class AnnouncedFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file for a job that is to be sent to a bucket. blob: its sha256, by which it goes on where it broke off.

    part: it has weights of a model.
    """

    name: str
    size_bytes: Annotated[int, Meta(ge=1)]
    blob: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")] = ""
    part: bool = False


class Way(msgspec.Struct):
    """Where bytes go: each part by PUT, of so many bytes from there on, to its own address, good for 15 minutes.

    have_bytes: that are there. parts: those that are missing, of a large file the next ones; none: all is there.
    """

    upload: str
    have_bytes: int
    parts: list[PartUpload]


class FilesAnswer(msgspec.Struct):
    """What a job was submitted with, the model first, or what was asked for; files that are not here are left out."""

    files: list[UploadAnswer]


class Uploads(Resource):
    """The routes; models: those of the Graph page, which then has the uploaded ones too."""

    def __init__(self, remote: JobService, visible: Visible, models: Models) -> None:
        self._remote, self._visible = remote, visible
        models.also(lambda id: _entries(remote, id), lambda path: ensure_local(remote, path))

    @change(
        "POST", "/uploads", status=201, content="application/octet-stream",
        refuses={
            **READ_ONLY, 409: "files go to a bucket", 413: "too large", 422: "no model or array that can be used",
            429: "a quota is used up",
            507: "the disk is full",
        },
    )  # fmt: skip
    def upload(self, query: JobUploadQuery) -> UploadAnswer:
        """Keep a model, a file with weights of it, or arrays for jobs."""
        self._visible.refuse_bytes(request.content_length or 0)
        return self._combined_answer(
            save_upload(self._remote, query.name, request.stream.read, query.part, self._visible.holds)
        )

    @change("POST", "/uploads/direct", status=201, refuses={**_DIRECT, 413: "too large", 429: "a quota is used up"})
    def announce(self, body: AnnouncedFile) -> Way:
        """Announce a file that is sent to the bucket; the answer says where."""
        upload, way = begin_upload(self._remote, who().user, body.name, body.size_bytes, body.blob, body.part)
        return Way(upload, way.have, way.parts)

    @get("/uploads/direct/<upload>", refuses=_DIRECT, needs="member")
    def missing(self, upload: str) -> Way:
        """What is missing of an announced file, with new addresses."""
        way = resume_upload(self._remote, who().user, upload)
        return Way(upload, way.have, way.parts)

    @change(
        "POST", "/uploads/direct/<upload>", status=201,
        refuses={**_DIRECT, 422: "not all there, or not what was announced, or of no use", 429: "a quota is used up"},
    )  # fmt: skip
    def arrived(self, upload: str) -> UploadAnswer:
        """Keep an announced file, once all of it was sent."""
        return self._combined_answer(finish_upload(self._remote, who().user, upload, self._visible.holds))

    @change("DELETE", "/uploads/direct/<upload>", status=204, refuses=_DIRECT)
    def give_up(self, upload: str) -> None:
        """Await an announced file no more."""
        cancel_upload(self._remote, who().user, upload)

    @change("POST", "/uploads/known", refuses=READ_ONLY)
    def known(self, body: KnownFile) -> FilesAnswer:
        """Keep a file that is here already under another name, without its bytes."""
        if not self._visible.holds(body.blob):
            return FilesAnswer([])
        try:
            file = reuse_upload(self._remote, body.blob, body.name, body.part)
        except NotFound:
            return FilesAnswer([])
        self._hold([file])
        return FilesAnswer([_upload_answer(file)])

    @get("/jobs/<job>/files", refuses={404: "there is no such job"})
    def files(self, job: str) -> FilesAnswer:
        """The model and arrays of a job."""
        found = self._visible.job(
            self._remote.require(msg("server.no_job_ever_submitted", "no job was ever submitted here")), job
        )
        submitted = found.request
        others = [blob for blob in submitted.blobs if blob != submitted.model.blob]
        return files_of(self._remote, submitted.model, others, found.owner)

    def _combined_answer(self, uploads: Sequence[UploadedFile]) -> UploadAnswer:
        self._hold(uploads)
        answer, *others = map(_upload_answer, uploads)
        answer.others = others
        return answer

    def _hold(self, uploads: Sequence[UploadedFile]) -> None:
        user = who().user
        if user is not None:
            self._remote.open().blobs.add_holder(user, {upload.blob: (upload.name, upload.size) for upload in uploads})


def files_of(remote: JobService, model: ModelRef, others: Sequence[str], owner: str | None) -> FilesAnswer:
    """A model and other files as their owner calls them."""
    files = [_upload_answer(upload) for upload in stored_uploads(remote, [model.blob, *others], owner)]
    for file in files:
        if file.blob == model.blob:
            file.name = model.name  # others may have uploaded it under another
    return FilesAnswer(files)


def _entries(remote: JobService, id: str) -> list[Entry]:
    """The uploaded models, or that of an id; without them the Graph page still has those of the log directories."""
    try:
        models = stored_models(remote, who().viewer, id)
    except VisualprofError as error:
        _log.warning("uploaded models are not shown: %s", error.error)
        return []
    return [(uploaded(m.id, m.name, m.format, m.size, m.kept_ns), m.path) for m in models]


def _upload_answer(upload: UploadedFile) -> UploadAnswer:
    content, blob = upload.content, upload.blob
    if isinstance(content, InspectedArray):
        return UploadAnswer(blob, upload.name, upload.size, "array", None, content, None)
    if isinstance(content, InspectedPart):
        return UploadAnswer(blob, upload.name, upload.size, "part", None, None, None)
    model = row(UploadedModel, content)
    return UploadAnswer(blob, upload.name, upload.size, "model", model, None, graph_id(blob, content.format))
