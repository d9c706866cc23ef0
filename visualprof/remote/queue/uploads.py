"""Uploaded files: kept when a job can use them, with what was found in them; gone again when not."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from visualprof.errors import FormatError
from visualprof.messages import msg
from visualprof.reader.models import all_models
from visualprof.remote.queue.check import zips
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
from visualprof.remote.queue.errors import Conflict, PayloadTooLarge, StoreUnavailable
from visualprof.remote.queue.service import JobService, JobServices
from visualprof.remote.queue.store.files import MAX_BLOB_BYTES, ReadChunk, UploadPlan
from visualprof.remote.queue.store.s3 import Bucket

if TYPE_CHECKING:
    from visualprof.remote.queue.store.pending_uploads import PendingUpload

MAX_LISTED_MODELS = 200


@dataclass(frozen=True)
class UploadedFile:
    """A file that was kept."""

    blob: str
    name: str
    size: int
    content: Inspected


@dataclass(frozen=True)
class StoredModel:
    """A model among the kept files. name: all by which it was uploaded. path: where it is once it was `fetched`."""

    id: str
    name: str
    path: Path
    format: str
    size: int
    kept_ns: int


def save_upload(
    remote: JobService, name: str, read: ReadChunk, part: bool = False, known: Callable[[str], bool] = lambda _: True
) -> list[UploadedFile]:
    """Keep a file and finds out what it is; the same content again is not read again.

    An `.npz` becomes its arrays, a zip with an ONNX model that model and the files beside it, model first.
    part: the file has weights of a model, and nothing is looked for in it.
    known: may whoever sends it know that a file is here? Else it is read again, so that the time does not tell.

    Raises: VisualprofError: nothing can be kept here, or the file is of no use; it is not kept then.
    """
    queue = remote.open()
    if queue.store.direct_uploads:
        raise Conflict(
            msg("queue.files_not_come_through", "files do not come through this server"),
            msg("queue.announce_them_post_api", "announce them: POST /api/v1/uploads/direct"),
        )
    return _uploads_of(queue, *queue.save_upload(safe_name(name), read), name, part, known)


def begin_upload(
    remote: JobService, owner: str | None, name: str, size: int, sha256: str = "", part: bool = False
) -> tuple[str, UploadPlan]:
    """Await a file in the bucket: its id, and where its bytes go.

    Raises: Conflict: there is no bucket. Oversize, OverQuota, StoreDown.
    """
    queue, bucket = _direct(remote)
    if size > MAX_BLOB_BYTES:
        raise PayloadTooLarge(
            msg("queue.file_over_mib", f"the file is over {MAX_BLOB_BYTES >> 20:,} MiB"),
            msg("queue.server_keeps_no_larger", "this server keeps no larger ones"),
        )
    arrival, new = queue.pending_uploads.begin(owner, safe_name(name), size, sha256, part)
    return arrival.id, bucket.begin_upload(arrival.key, size, new)


def resume_upload(remote: JobService, owner: str | None, upload: str) -> UploadPlan:
    """What is missing of an announced file, with new addresses.

    Raises: NotFound, StoreDown.
    """
    queue, bucket = _direct(remote)
    arrival = queue.pending_uploads.get(upload, owner)
    return bucket.begin_upload(arrival.key, arrival.size_bytes, new=False)


def finish_upload(
    remote: JobService, owner: str | None, upload: str, known: Callable[[str], bool] = lambda _: True
) -> list[UploadedFile]:
    """Keep an announced file that is all there; as `take`.

    Raises: NotFound. Unfit: it is not all there, or differs; it can be sent again. VisualprofError: as `take`.
    """
    queue, bucket = _direct(remote)
    arrival = queue.pending_uploads.get(upload, owner)
    blob = bucket.finalize(arrival.key, arrival.size_bytes, arrival.sha256)
    queue.add_upload(blob, arrival.name, arrival.size_bytes)
    _end(queue, arrival)
    return _uploads_of(queue, blob, arrival.size_bytes, arrival.name, arrival.part, known)


def cancel_upload(remote: JobService, owner: str | None, upload: str) -> None:
    """Await a file no more.

    Raises: NotFound.
    """
    queue, _ = _direct(remote)
    _end(queue, queue.pending_uploads.get(upload, owner))


def _end(queue: JobServices, arrival: PendingUpload) -> None:
    queue.pending_uploads.remove(arrival.id)
    with contextlib.suppress(StoreUnavailable):  # upkeep removes it, too
        queue.store.delete(arrival.key)


def _direct(remote: JobService) -> tuple[JobServices, Bucket]:
    queue = remote.open()
    if not isinstance(queue.store, Bucket):
        raise Conflict(
            msg("queue.files_come_through_server", "files come through this server"),
            msg("queue.send_them_post_api", "send them: POST /api/v1/uploads"),
        )
    return queue, queue.store


def _uploads_of(
    queue: JobServices, blob: str, size: int, name: str, part: bool, known: Callable[[str], bool]
) -> list[UploadedFile]:
    """What is in a file that is kept; it is not, if that is of no use."""
    try:
        if part:
            return [_remembered(queue, blob, name, size, InspectedPart(size))]
        packed = _packed(queue.blobs.path(blob), name)
        if packed:
            uploads = _unpacked(queue, queue.blobs.path(blob), packed, known)
            queue.blobs.delete_unused(blob)
            return uploads
        return [_inspected(queue, blob, safe_name(name), size, known(blob))]
    except BaseException:
        queue.blobs.delete_unused(blob)
        raise


def reuse_upload(remote: JobService, blob: str, name: str, part: bool = False) -> UploadedFile:
    """A file that is here already, as if it had been sent under this name.

    Raises: NotFound: it is not here. VisualprofError: as `take`.
    """
    queue = remote.open()
    size = queue.blobs.reuse(blob, name)
    if part:
        return _remembered(queue, blob, name, size, InspectedPart(size))
    return _inspected(queue, blob, safe_name(name), size)


def graph_id(blob: str, format: str) -> str | None:
    """Id of a kept model on the Graph page; of a format that only a backend knows there is none."""
    return f"upload:{blob}" if any(model.name == format for model in all_models()) else None


def _inspected(queue: JobServices, blob: str, name: str, size: int, known: bool = True) -> UploadedFile:
    kept = queue.blobs.inspection(blob) if known else None
    found = inspection_from_json(kept) if kept else None
    if found is None or isinstance(found, InspectedPart):
        found = inspect_file(queue.blobs.path(blob), name)
    return _remembered(queue, blob, name, size, found)


def _remembered(queue: JobServices, blob: str, name: str, size: int, content: Inspected) -> UploadedFile:
    graph = None
    if isinstance(content, InspectedModel):
        name, graph = model_name(name, content.format), graph_id(blob, content.format)
        content = with_weights_named(name, content)
    kept = queue.blobs.inspection(blob)
    if not isinstance(content, InspectedPart) or kept is None:  # what is a model stays one, whatever it is beside
        queue.blobs.save_inspection(
            blob, name, {**inspection_to_json(content), "graph": graph, "name": name, "size_bytes": size}
        )
    return UploadedFile(blob, name, size, content)


def _packed(path: Path, name: str) -> list[str]:
    """The files of a zip that is no model itself: arrays, or one model and what lies beside it, model first.

    Raises: FormatError: it is no zip that can be opened, or there are several models in it.
    """
    names = zips.list_members(path, name)
    if names and all(member.endswith(".npy") for member in names):
        return names
    models = [member for member in names if member.lower().endswith((".onnx", "saved_model.pb"))]
    if len(models) > 1:
        raise FormatError(
            msg("queue.models_archive", f"{name}: {len(models)} models in the archive"),
            msg("queue.one_model_zip_weights", "one model in a zip, with its weights"),
        )
    folder = models[0].rpartition("/")[0] if models else ""
    beside = [member for member in names if member not in models and member.startswith(folder)]
    return [*models, *beside] if models else []


def _unpacked(queue: JobServices, path: Path, names: Sequence[str], known: Callable[[str], bool]) -> list[UploadedFile]:
    """The files of a zip, each kept: of those beside a model only what it names."""
    uploads: list[UploadedFile] = []
    with zipfile.ZipFile(path) as archive:
        for member in names:
            below = member.removeprefix(names[0].rpartition("/")[0]).lstrip("/")
            first = uploads[0].content if uploads else None
            wanted = {file.path for file in first.external} if isinstance(first, InspectedModel) else None
            if wanted is not None and below not in wanted:
                continue
            with archive.open(member) as file:
                blob, size = queue.save_upload(safe_name(member), file.read)
            if wanted is None:
                uploads.append(_inspected(queue, blob, safe_name(member), size, known(blob)))
            else:
                uploads.append(_remembered(queue, blob, below, size, InspectedPart(size)))
    return uploads


def save_local_files(remote: JobService, files: Mapping[str, Path], part: bool = False) -> list[UploadedFile]:
    """Keep a model, which comes first, and files with weights of it that lie on this machine, by their names.

    part: nothing is looked for in the first, either.

    Raises: VisualprofError: as `take`.
    """
    queue = remote.open()
    uploads: list[UploadedFile] = []
    for name, path in files.items():
        with path.open("rb") as file:
            kept = queue.save_upload(safe_name(name), file.read)
        uploads += _uploads_of(queue, *kept, name, part=part or bool(uploads), known=lambda _: True)
    return uploads


def inspected_model(queue: JobServices, blob: str, name: str) -> InspectedModel | None:
    """What is in a kept model, its operators too, which earlier versions did not count; None when it is no model.

    Raises: VisualprofError: as `take`.
    """
    kept = queue.blobs.inspection(blob)
    found = inspection_from_json(kept) if kept else None
    if kept and isinstance(found, InspectedModel) and "operators" not in kept:
        found = inspect_file(queue.blobs.path(blob), name)
        queue.blobs.save_inspection(blob, name, {**kept, **inspection_to_json(found)})
    return found if isinstance(found, InspectedModel) else None


def stored_uploads(remote: JobService, names: Sequence[str], owner: str | None) -> list[UploadedFile]:
    """Kept files by their sha256, in this order, as their owner calls them; those that are gone are left out."""
    queue = remote.open_existing()
    if queue is None:
        return []
    rows, own = queue.blobs.inspected_rows(names), queue.blobs.names(names, owner)
    return [
        UploadedFile(
            name,
            own.get(name, str(rows[name].name)),
            rows[name].size_bytes,
            inspection_from_json(msgspec.json.decode(rows[name].inspected)),
        )
        for name in dict.fromkeys(names)
        if name in rows
    ]


def ensure_local(remote: JobService, path: Path) -> None:
    """Bring a kept model to where `kept_models` says that it is.

    Raises: NotFound, StoreDown.
    """
    remote.open().blobs.path(path.name)


def stored_models(remote: JobService, viewer: str | None = None, id: str = "") -> list[StoredModel]:
    """The models among the kept files that somebody may see, or of all, the latest first, for the Graph page.

    id: only this one, however old it is.
    """
    queue = remote.open_existing()
    if queue is None:
        return []
    models: list[StoredModel] = []
    rows = queue.blobs.models(MAX_LISTED_MODELS, viewer, id.removeprefix("upload:"))
    own = queue.blobs.names([row.sha256 for row in rows], viewer)
    for row in rows:
        path = queue.store.local_path(row.sha256)
        if not (queue.store.direct_uploads or path.is_file()):  # somebody tidied up
            continue
        found = msgspec.json.decode(row.inspected)
        names = ", ".join(found.get("names", [row.name])) if viewer is None else own.get(row.sha256, "")
        if graph := graph_id(row.sha256, found["format"]):
            models.append(StoredModel(graph, names, path, found["format"], row.size_bytes, row.kept_ns))
    return models
