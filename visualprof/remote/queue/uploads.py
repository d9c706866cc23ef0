"""Uploaded files: inspected, and stored if a job can use them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from visualprof.messages import msg
from visualprof.reader.models import model_formats
from visualprof.remote.queue.check.inspect import (
    Inspected,
    InspectedModel,
    InspectedPart,
    inspect_file,
    inspection_from_json,
    inspection_to_json,
    model_name,
    safe_name,
    with_weights_named,
)
from visualprof.remote.queue.check.unpack import UnpackedZip, unpack_members, unpack_zip
from visualprof.remote.queue.errors import Conflict, PayloadTooLarge, StoreUnavailable
from visualprof.remote.queue.service import JobService, JobServices
from visualprof.remote.queue.store.files import MAX_BLOB_BYTES, ReadChunk, UploadPlan
from visualprof.remote.queue.store.s3 import Bucket

if TYPE_CHECKING:
    from visualprof.remote.queue.store.pending_uploads import PendingUpload

MAX_LISTED_MODELS = 200


@dataclass(frozen=True)
class UploadedFile:
    """A stored file.

    Attributes:
        blob: Digest of the file.
        name: Name of the file.
        size: Size in bytes.
        content: Result of the inspection.
    """

    blob: str
    name: str
    size: int
    content: Inspected


@dataclass(frozen=True)
class StoredModel:
    """A model among the stored files.

    Attributes:
        id: Id on the Graph page.
        name: All names under which the model was uploaded.
        path: Where the model is after `ensure_local`.
        format: Format of the model.
        size: Size in bytes.
        kept_ns: When the model was stored.
    """

    id: str
    name: str
    path: Path
    format: str
    size: int
    kept_ns: int


def save_upload(
    job_service: JobService,
    name: str,
    read: ReadChunk,
    part: bool = False,
    may_know: Callable[[str], bool] = lambda _: True,
) -> list[UploadedFile]:
    """Store and inspect a file. Content that was inspected before is not inspected again.

    An `.npz` file becomes its arrays. A zip with an ONNX model becomes the model and its weight files, the model first.

    Args:
        job_service: Job service of the server.
        name: Name of the file.
        read: Reads the file.
        part: Whether the file contains weights of a model and is not inspected.
        may_know: Whether the sender may learn that a file is stored. Otherwise the file is inspected again, so that the
            response time reveals nothing.

    Raises:
        VisualprofError: Nothing can be stored here, or the file cannot be used; then it is not stored.
    """
    services = job_service.open()
    if services.store.direct_uploads:
        raise Conflict(
            msg("queue.files_not_come_through", "files do not come through this server"),
            msg("queue.announce_them_post_api", "announce them: POST /api/v1/uploads/direct"),
        )
    return _inspect_and_save(services, *services.save_upload(safe_name(name), read), name, part, may_know)


def begin_upload(
    job_service: JobService, owner: str | None, name: str, size: int, sha256: str = "", part: bool = False
) -> tuple[str, UploadPlan]:
    """Announce an upload to the bucket.

    Returns:
        The id of the upload, and where to send its bytes.

    Raises:
        Conflict: There is no bucket.
        PayloadTooLarge: The file is too large.
        QuotaExceeded: The owner has reached a quota.
        StoreUnavailable: The bucket does not answer.
    """
    services, bucket = _services_and_bucket(job_service)
    if size > MAX_BLOB_BYTES:
        raise PayloadTooLarge(
            msg("queue.file_over_mib", f"the file is over {MAX_BLOB_BYTES >> 20:,} MiB"),
            msg("queue.server_keeps_no_larger", "this server keeps no larger ones"),
        )
    upload, is_new = services.pending_uploads.begin(owner, safe_name(name), size, sha256, part)
    return upload.id, bucket.begin_upload(upload.key, size, is_new)


def resume_upload(job_service: JobService, owner: str | None, upload_id: str) -> UploadPlan:
    """Return what is missing of an upload, with new URLs.

    Raises:
        NotFound: The upload was not announced.
        StoreUnavailable: The bucket does not answer.
    """
    services, bucket = _services_and_bucket(job_service)
    upload = services.pending_uploads.get(upload_id, owner)
    return bucket.begin_upload(upload.key, upload.size_bytes, is_new=False)


def finish_upload(
    job_service: JobService, owner: str | None, upload_id: str, may_know: Callable[[str], bool] = lambda _: True
) -> list[UploadedFile]:
    """Store and inspect an upload that is complete; see `save_upload`.

    Raises:
        NotFound: The upload was not announced.
        InvalidResult: The upload is incomplete or differs; it can be sent again.
        VisualprofError: The file cannot be used; then it is not stored.
    """
    services, bucket = _services_and_bucket(job_service)
    upload = services.pending_uploads.get(upload_id, owner)
    blob = bucket.finalize(upload.key, upload.size_bytes, upload.sha256)
    services.add_upload(blob, upload.name, upload.size_bytes)
    _remove_pending(services, upload)
    return _inspect_and_save(services, blob, upload.size_bytes, upload.name, upload.part, may_know)


def cancel_upload(job_service: JobService, owner: str | None, upload_id: str) -> None:
    """Cancel an upload.

    Raises:
        NotFound: The upload was not announced.
    """
    services, _ = _services_and_bucket(job_service)
    _remove_pending(services, services.pending_uploads.get(upload_id, owner))


def _remove_pending(services: JobServices, upload: PendingUpload) -> None:
    services.pending_uploads.remove(upload.id)
    with contextlib.suppress(StoreUnavailable):  # then maintenance removes it
        services.store.delete(upload.key)


def _services_and_bucket(job_service: JobService) -> tuple[JobServices, Bucket]:
    services = job_service.open()
    if not isinstance(services.store, Bucket):
        raise Conflict(
            msg("queue.files_come_through_server", "files come through this server"),
            msg("queue.send_them_post_api", "send them: POST /api/v1/uploads"),
        )
    return services, services.store


def _inspect_and_save(
    services: JobServices, blob: str, size: int, name: str, part: bool, may_know: Callable[[str], bool]
) -> list[UploadedFile]:
    """Inspect a stored file; delete it if it cannot be used."""
    try:
        if part:
            return [_save_inspection(services, blob, name, size, InspectedPart(size))]
        with tempfile.TemporaryDirectory(prefix="visualprof-upload-") as folder:
            unpacked = unpack_zip(services.blobs.path(blob), name, Path(folder))
            if unpacked.files:
                uploads = _save_unpacked(services, blob, name, unpacked, may_know)
                services.blobs.delete_unused(blob)
                return uploads
        return [_inspect(services, blob, safe_name(name), size, may_know(blob))]
    except BaseException:
        services.blobs.delete_unused(blob)
        raise


def reuse_upload(job_service: JobService, blob: str, name: str, part: bool = False) -> UploadedFile:
    """Inspect a file that is already stored, as if it had been sent under this name.

    Raises:
        NotFound: The file is not stored.
        VisualprofError: The file cannot be used.
    """
    services = job_service.open()
    size = services.blobs.reuse(blob, name)
    if part:
        return _save_inspection(services, blob, name, size, InspectedPart(size))
    return _inspect(services, blob, safe_name(name), size)


def graph_id(blob: str, format: str) -> str | None:
    """Return the id of a stored model on the Graph page; None if only a backend reads its format."""
    return f"upload:{blob}" if any(model.name == format for model in model_formats()) else None


def _inspect(services: JobServices, blob: str, name: str, size: int, may_reuse: bool = True) -> UploadedFile:
    inspection = services.blobs.inspection(blob) if may_reuse else None
    content = inspection_from_json(inspection) if inspection else None
    if content is None or isinstance(content, InspectedPart):
        content = inspect_file(services.blobs.path(blob), name)
    return _save_inspection(services, blob, name, size, content)


def _save_inspection(services: JobServices, blob: str, name: str, size: int, content: Inspected) -> UploadedFile:
    graph = None
    if isinstance(content, InspectedModel):
        name, graph = model_name(name, content.format), graph_id(blob, content.format)
        content = with_weights_named(name, content)
    previous = services.blobs.inspection(blob)
    if (
        not isinstance(content, InspectedPart) or previous is None
    ):  # a model stays a model, even if it is also a weight file
        services.blobs.save_inspection(
            blob, name, {**inspection_to_json(content), "graph": graph, "name": name, "size_bytes": size}
        )
    return UploadedFile(blob, name, size, content)


def _save_unpacked(
    services: JobServices, blob: str, name: str, unpacked: UnpackedZip, may_know: Callable[[str], bool]
) -> list[UploadedFile]:
    """Store the files of a zip. Of the files next to a model, only those that the model names are stored."""
    uploads: list[UploadedFile] = []
    for file in unpacked.files:
        file_name = safe_name(file.name)
        digest, size = _store(services, file_name, file.path)
        if file.content:
            uploads.append(_save_inspection(services, digest, file_name, size, file.content))
        else:
            uploads.append(_inspect(services, digest, file_name, size, may_know(digest)))
    model = uploads[0].content
    if not isinstance(model, InspectedModel):
        return uploads
    above = unpacked.files[0].name.rpartition("/")[0]
    paths = {member: member.removeprefix(above).lstrip("/") for member in unpacked.weights}
    needed = {weights.path for weights in model.external}
    members = [member for member in unpacked.weights if paths[member] in needed]
    with tempfile.TemporaryDirectory(prefix="visualprof-upload-") as folder:
        for file in unpack_members(services.blobs.path(blob), name, members, Path(folder)):
            digest, size = _store(services, safe_name(file.name), file.path)
            uploads.append(_save_inspection(services, digest, paths[file.name], size, InspectedPart(size)))
    return uploads


def _store(services: JobServices, name: str, path: Path) -> tuple[str, int]:
    """Store an unpacked file, and delete it. Return its digest and its size."""
    with path.open("rb") as file:
        stored = services.save_upload(name, file.read)
    path.unlink()
    return stored


def save_local_files(job_service: JobService, files: Mapping[str, Path], part: bool = False) -> list[UploadedFile]:
    """Store files of this machine, by name: a model first, then its weight files.

    Args:
        job_service: Job service of the server.
        files: Paths by name.
        part: Whether the first file is not inspected either.

    Raises:
        VisualprofError: A file cannot be used, or nothing can be stored.
    """
    services = job_service.open()
    uploads: list[UploadedFile] = []
    for name, path in files.items():
        with path.open("rb") as file:
            blob_and_size = services.save_upload(safe_name(name), file.read)
        uploads += _inspect_and_save(
            services, *blob_and_size, name, part=part or bool(uploads), may_know=lambda _: True
        )
    return uploads


def inspected_model(services: JobServices, blob: str, name: str) -> InspectedModel | None:
    """Return the inspection of a stored model; None if the file is not a model.

    A model that was inspected by an earlier version, which did not count operators, is inspected again.

    Raises:
        VisualprofError: The file cannot be used.
    """
    inspection = services.blobs.inspection(blob)
    content = inspection_from_json(inspection) if inspection else None
    if inspection and isinstance(content, InspectedModel) and "operators" not in inspection:
        content = inspect_file(services.blobs.path(blob), name)
        services.blobs.save_inspection(blob, name, {**inspection, **inspection_to_json(content)})
    return content if isinstance(content, InspectedModel) else None


def stored_uploads(job_service: JobService, names: Sequence[str], owner: str | None) -> list[UploadedFile]:
    """Return stored files by digest, in this order, with their owner's names. Deleted files are omitted."""
    services = job_service.open_existing()
    if services is None:
        return []
    rows, names_of_owner = services.blobs.inspected_rows(names), services.blobs.names(names, owner)
    return [
        UploadedFile(
            name,
            names_of_owner.get(name, str(rows[name].name)),
            rows[name].size_bytes,
            inspection_from_json(msgspec.json.decode(rows[name].inspected)),
        )
        for name in dict.fromkeys(names)
        if name in rows
    ]


def ensure_local(job_service: JobService, path: Path) -> None:
    """Download a stored model to the path that `stored_models` returns.

    Raises:
        NotFound: The model was deleted.
        StoreUnavailable: The bucket does not answer.
    """
    job_service.open().blobs.path(path.name)


def stored_models(job_service: JobService, viewer: str | None = None, id: str = "") -> list[StoredModel]:
    """Return the stored models that a viewer may see, latest first, for the Graph page. None sees all.

    Args:
        job_service: Job service of the server.
        viewer: Id of a user; None sees everything.
        id: Only the model of this id, regardless of its age.
    """
    services = job_service.open_existing()
    if services is None:
        return []
    models: list[StoredModel] = []
    rows = services.blobs.models(MAX_LISTED_MODELS, viewer, id.removeprefix("upload:"))
    names_of_viewer = services.blobs.names([row.sha256 for row in rows], viewer)
    for row in rows:
        path = services.store.local_path(row.sha256)
        if not (services.store.direct_uploads or path.is_file()):  # the file was deleted by hand
            continue
        inspection = msgspec.json.decode(row.inspected)
        names = (
            ", ".join(inspection.get("names", [row.name])) if viewer is None else names_of_viewer.get(row.sha256, "")
        )
        if graph := graph_id(row.sha256, inspection["format"]):
            models.append(StoredModel(graph, names, path, inspection["format"], row.size_bytes, row.kept_ns))
    return models
