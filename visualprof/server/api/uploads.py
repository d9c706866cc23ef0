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
from visualprof.server.api.models import Entry, Models, UploadQuery, uploaded_entry
from visualprof.server.identity import current_principal
from visualprof.server.responses import build_row
from visualprof.server.routes import READ_ONLY_ERROR, Resource, get, mutation
from visualprof.server.visible import Visible

_log = logging.getLogger(__name__)

_DIRECT_ERRORS = {
    **READ_ONLY_ERROR,
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


class UploadAnswer(msgspec.Struct, kw_only=True):
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


class ExistingFile(msgspec.Struct):
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


class UploadTarget(msgspec.Struct):
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

    def __init__(self, job_service: JobService, visible: Visible, models: Models) -> None:
        self._job_service, self._visible = job_service, visible
        models.add_source(lambda id: _model_entries(job_service, id), lambda path: ensure_local(job_service, path))

    @mutation(
        "POST", "/uploads", status=201, content="application/octet-stream",
        errors={
            **READ_ONLY_ERROR, 409: "files go to a bucket", 413: "too large", 422: "no model or array that can be used",
            429: "a quota is used up",
            507: "the disk is full",
        },
    )  # fmt: skip
    def upload(self, query: JobUploadQuery) -> UploadAnswer:
        """Keep a model, a file with weights of it, or arrays for jobs."""
        self._visible.check_upload_quota(request.content_length or 0)
        return self._combined_answer(
            save_upload(self._job_service, query.name, request.stream.read, query.part, self._visible.has_upload)
        )

    @mutation(
        "POST", "/uploads/direct", status=201, errors={**_DIRECT_ERRORS, 413: "too large", 429: "a quota is used up"}
    )
    def announce(self, body: AnnouncedFile) -> UploadTarget:
        """Announce a file that is sent to the bucket; the answer says where."""
        upload, way = begin_upload(
            self._job_service, current_principal().user, body.name, body.size_bytes, body.blob, body.part
        )
        return UploadTarget(upload, way.have, way.parts)

    @get("/uploads/direct/<upload>", errors=_DIRECT_ERRORS, needs="member")
    def missing(self, upload: str) -> UploadTarget:
        """What is missing of an announced file, with new addresses."""
        way = resume_upload(self._job_service, current_principal().user, upload)
        return UploadTarget(upload, way.have, way.parts)

    @mutation(
        "POST", "/uploads/direct/<upload>", status=201,
        errors={**_DIRECT_ERRORS, 422: "not all there, or not what was announced, or of no use",
                429: "a quota is used up"},
    )  # fmt: skip
    def arrived(self, upload: str) -> UploadAnswer:
        """Keep an announced file, once all of it was sent."""
        return self._combined_answer(
            finish_upload(self._job_service, current_principal().user, upload, self._visible.has_upload)
        )

    @mutation("DELETE", "/uploads/direct/<upload>", status=204, errors=_DIRECT_ERRORS)
    def give_up(self, upload: str) -> None:
        """Await an announced file no more."""
        cancel_upload(self._job_service, current_principal().user, upload)

    @mutation("POST", "/uploads/known", errors=READ_ONLY_ERROR)
    def reuse(self, body: ExistingFile) -> FilesAnswer:
        """Store an already uploaded file under another name, without sending its bytes again."""
        if not self._visible.has_upload(body.blob):
            return FilesAnswer([])
        try:
            file = reuse_upload(self._job_service, body.blob, body.name, body.part)
        except NotFound:
            return FilesAnswer([])
        self._hold([file])
        return FilesAnswer([_upload_answer(file)])

    @get("/jobs/<job>/files", errors={404: "there is no such job"})
    def files(self, job: str) -> FilesAnswer:
        """The model and arrays of a job."""
        found = self._visible.job(
            self._job_service.require(msg("server.no_job_ever_submitted", "no job was ever submitted here")), job
        )
        submitted = found.request
        others = [blob for blob in submitted.blobs if blob != submitted.model.blob]
        return job_files(self._job_service, submitted.model, others, found.owner)

    def _combined_answer(self, uploads: Sequence[UploadedFile]) -> UploadAnswer:
        self._hold(uploads)
        answer, *others = map(_upload_answer, uploads)
        answer.others = others
        return answer

    def _hold(self, uploads: Sequence[UploadedFile]) -> None:
        user = current_principal().user
        if user is not None:
            self._job_service.open().blobs.add_holder(
                user, {upload.blob: (upload.name, upload.size) for upload in uploads}
            )


def job_files(job_service: JobService, model: ModelRef, others: Sequence[str], owner: str | None) -> FilesAnswer:
    """A model and other files as their owner calls them."""
    files = [_upload_answer(upload) for upload in stored_uploads(job_service, [model.blob, *others], owner)]
    for file in files:
        if file.blob == model.blob:
            file.name = model.name  # others may have uploaded it under another
    return FilesAnswer(files)


def _model_entries(job_service: JobService, id: str) -> list[Entry]:
    """The uploaded models, or that of an id; without them the Graph page still has those of the log directories."""
    try:
        models = stored_models(job_service, current_principal().viewer, id)
    except VisualprofError as error:
        _log.warning("uploaded models are not shown: %s", error.error)
        return []
    return [(uploaded_entry(m.id, m.name, m.format, m.size, m.kept_ns), m.path) for m in models]


def _upload_answer(upload: UploadedFile) -> UploadAnswer:
    content, blob = upload.content, upload.blob
    if isinstance(content, InspectedArray):
        return UploadAnswer(
            blob=blob, name=upload.name, size_bytes=upload.size, kind="array", model=None, array=content, graph=None
        )
    if isinstance(content, InspectedPart):
        return UploadAnswer(
            blob=blob, name=upload.name, size_bytes=upload.size, kind="part", model=None, array=None, graph=None
        )
    model = build_row(UploadedModel, content)
    return UploadAnswer(
        blob=blob,
        name=upload.name,
        size_bytes=upload.size,
        kind="model",
        model=model,
        array=None,
        graph=graph_id(blob, content.format),
    )
