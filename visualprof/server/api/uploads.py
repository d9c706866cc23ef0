"""Upload models and arrays for jobs. Uploaded models also appear on the Graph page."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
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
from visualprof.server.api.model_graphs import UploadQuery
from visualprof.server.api.models import Entry, Models, uploaded_entry
from visualprof.server.identity import current_principal
from visualprof.server.responses import build_row
from visualprof.server.routes import READ_ONLY_ERROR, Resource, get, mutation
from visualprof.server.services import Services
from visualprof.server.user_slots import UserSlots

_log = logging.getLogger(__name__)

MAX_UPLOADS_PER_USER = 4  # of a user of a server with accounts, at the same time

_DIRECT_ERRORS = {
    **READ_ONLY_ERROR,
    404: msg("server.upload_not_awaited", "this upload is not awaited"),
    409: msg("server.files_come_through_server", "files come through this server"),
    503: msg("server.store_not_answer", "the store does not answer"),
}


class UploadedModel(msgspec.Struct):
    """Contents of a model file.

    Attributes:
        format: Format of the model.
        inputs: Inputs of the model.
        outputs: Outputs of the model.
        dims: Named dimensions with a suggested size.
        backends: Backends that can load the model.
        warnings: Warnings about the file.
        fixed_inputs: Whether the file fixes the names, types and dimensions of its inputs. Otherwise a job may change
            them.
        external: Files that contain the model's weights. A job names them as parts of the model.
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
    """A stored file.

    Attributes:
        blob: Id by which jobs refer to the file.
        name: Name of the file.
        size_bytes: Size of the file.
        kind: Kind of the file. A `part` contains weights of a model.
        model: Contents of a model, else null.
        array: Contents of an array, else null.
        graph: Id of a model on the Graph page, else null.
        others: Further files of an uploaded archive: the other arrays of an .npz file, or the parts of a model.
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

    part: Annotated[bool, Meta(description="the file contains weights of a model and is not inspected")] = False


class ExistingFile(msgspec.Struct):
    """A file for a job that may already be stored.

    Attributes:
        blob: sha256 of the file.
        name: Name of the file.
        part: Whether the file contains weights of a model.
    """

    blob: str
    name: str
    part: bool = False


class AnnouncedFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file for a job that will be uploaded to a bucket.

    Attributes:
        name: Name of the file.
        size_bytes: Size of the file.
        blob: sha256 of the file, which allows to resume an interrupted upload, or "".
        part: Whether the file contains weights of a model.
    """

    name: str
    size_bytes: Annotated[int, Meta(ge=1)]
    blob: Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")] = ""
    part: bool = False


class UploadTarget(msgspec.Struct):
    """The upload URLs of a file. Each part is uploaded by PUT to its own URL, which is valid for 15 minutes.

    Attributes:
        upload: Id of the upload.
        have_bytes: Bytes that are already stored.
        parts: Missing parts with their offsets and sizes. Of a large file only the next parts. Empty: nothing is
            missing.
    """

    upload: str
    have_bytes: int
    parts: list[PartUpload]


class FilesAnswer(msgspec.Struct):
    """Requested files, or the files of a job, the model first. Deleted files are left out."""

    files: list[UploadAnswer]


class Uploads(Resource):
    """The routes for uploads. Uploaded models are also added to `models`, the models of the Graph page."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        job_service = self._job_service
        self._user_slots = UserSlots(MAX_UPLOADS_PER_USER)
        services.get(Models).add_source(
            lambda id: _model_entries(job_service, id), lambda path: ensure_local(job_service, path)
        )

    @mutation(
        "POST",
        "/uploads",
        status=201,
        content="application/octet-stream",
        errors={
            **READ_ONLY_ERROR,
            409: "files are uploaded to a bucket",
            413: "too large",
            422: "not a usable model or array",
            429: "a quota is used up",
            507: "the disk is full",
        },
    )
    def upload(self, query: JobUploadQuery) -> UploadAnswer:
        """Upload a model, a file with weights of a model, or arrays for jobs."""
        self._visible.check_upload_quota(request.content_length or 0)
        user = current_principal().user
        with self._user_slots.hold(user) if user is not None else nullcontext():
            files = save_upload(
                self._job_service, query.name, request.stream.read, query.part, self._visible.has_upload
            )
        return self._combined_answer(files)

    @mutation(
        "POST", "/uploads/direct", status=201, errors={**_DIRECT_ERRORS, 413: "too large", 429: "a quota is used up"}
    )
    def announce(self, body: AnnouncedFile) -> UploadTarget:
        """Announce a file that is uploaded to the bucket, and return where to upload it."""
        upload, plan = begin_upload(
            self._job_service, current_principal().user, body.name, body.size_bytes, body.blob, body.part
        )
        return UploadTarget(upload, plan.have, plan.parts)

    @get("/uploads/direct/<upload>", errors=_DIRECT_ERRORS, needs="member")
    def missing(self, upload: str) -> UploadTarget:
        """Return the missing parts of an announced file, with new URLs."""
        plan = resume_upload(self._job_service, current_principal().user, upload)
        return UploadTarget(upload, plan.have, plan.parts)

    @mutation(
        "POST",
        "/uploads/direct/<upload>",
        status=201,
        errors={
            **_DIRECT_ERRORS,
            422: "the file is incomplete, differs from the announcement or is not usable",
            429: "a quota is used up",
        },
    )
    def arrived(self, upload: str) -> UploadAnswer:
        """Finish the upload of an announced file."""
        return self._combined_answer(
            finish_upload(self._job_service, current_principal().user, upload, self._visible.has_upload)
        )

    @mutation("DELETE", "/uploads/direct/<upload>", status=204, errors=_DIRECT_ERRORS)
    def give_up(self, upload: str) -> None:
        """Cancel the upload of an announced file."""
        cancel_upload(self._job_service, current_principal().user, upload)

    @mutation("POST", "/uploads/known", errors=READ_ONLY_ERROR)
    def reuse(self, body: ExistingFile) -> FilesAnswer:
        """Reuse a stored file under another name, without uploading it again."""
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
        """List the model and arrays of a job."""
        queued_job = self._visible.job(
            self._job_service.require(msg("server.no_job_ever_submitted", "no job was ever submitted here")), job
        )
        submitted = queued_job.request
        others = [blob for blob in submitted.blobs if blob != submitted.model.blob]
        return job_files(self._job_service, submitted.model, others, queued_job.owner)

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
    """Return a model and other files under the names that their owner uses."""
    files = [_upload_answer(upload) for upload in stored_uploads(job_service, [model.blob, *others], owner)]
    for file in files:
        if file.blob == model.blob:
            file.name = model.name  # another user may have uploaded it under another name
    return FilesAnswer(files)


def _model_entries(job_service: JobService, id: str) -> list[Entry]:
    """Return the uploaded models, or the model with the given id.

    If the queue is not available, only the models of the log directories are shown.
    """
    try:
        models = stored_models(job_service, current_principal().viewer, id)
    except VisualprofError as error:
        _log.warning("uploaded models are not shown: %s", error.error)
        return []
    return [(uploaded_entry(m.id, m.name, m.format, m.size, m.kept_ns), m.path) for m in models]


def _upload_answer(upload: UploadedFile) -> UploadAnswer:
    content = upload.content
    model = None if isinstance(content, InspectedArray | InspectedPart) else content
    return UploadAnswer(
        blob=upload.blob,
        name=upload.name,
        size_bytes=upload.size,
        kind="model" if model else "array" if isinstance(content, InspectedArray) else "part",
        model=build_row(UploadedModel, model) if model else None,
        array=content if isinstance(content, InspectedArray) else None,
        graph=graph_id(upload.blob, model.format) if model else None,
    )
