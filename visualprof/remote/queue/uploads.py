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
    as_json,
    from_json,
    inspect_file,
    model_name,
    safe_name,
    under,
)
from visualprof.remote.queue.refusals import Conflict, Oversize, StoreDown
from visualprof.remote.queue.service import Queue, Remote
from visualprof.remote.queue.store.files import MAX_BLOB, Read, Way
from visualprof.remote.queue.store.s3 import Bucket

if TYPE_CHECKING:
    from visualprof.remote.queue.store.pending_uploads import Arrival

LISTED = 200


@dataclass(frozen=True)
class Upload:
    """A file that was kept."""

    blob: str
    name: str
    size: int
    content: Inspected


@dataclass(frozen=True)
class KeptModel:
    """A model among the kept files. name: all by which it was uploaded. path: where it is once it was `fetched`."""

    id: str
    name: str
    path: Path
    format: str
    size: int
    kept_ns: int


def take(
    remote: Remote, name: str, read: Read, part: bool = False, known: Callable[[str], bool] = lambda _: True
) -> list[Upload]:
    """Keep a file and finds out what it is; the same content again is not read again.

    An `.npz` becomes its arrays, a zip with an ONNX model that model and the files beside it, model first.
    part: the file has weights of a model, and nothing is looked for in it.
    known: may whoever sends it know that a file is here? Else it is read again, so that the time does not tell.

    Raises: VisualprofError: nothing can be kept here, or the file is of no use; it is not kept then.
    """
    queue = remote.opened()
    if queue.store.direct:
        raise Conflict(
            msg("queue.files_not_come_through", "files do not come through this server"),
            msg("queue.announce_them_post_api", "announce them: POST /api/v1/uploads/direct"),
        )
    return _uploads_of(queue, *queue.keep(safe_name(name), read), name, part, known)


def announce(
    remote: Remote, owner: str | None, name: str, size: int, sha256: str = "", part: bool = False
) -> tuple[str, Way]:
    """Await a file in the bucket: its id, and where its bytes go.

    Raises: Conflict: there is no bucket. Oversize, OverQuota, StoreDown.
    """
    queue, bucket = _direct(remote)
    if size > MAX_BLOB:
        raise Oversize(
            msg("queue.file_over_mib", f"the file is over {MAX_BLOB >> 20:,} MiB"),
            msg("queue.server_keeps_no_larger", "this server keeps no larger ones"),
        )
    arrival, new = queue.arrivals.announce(owner, safe_name(name), size, sha256, part)
    return arrival.id, bucket.announce(arrival.key, size, new)


def missing(remote: Remote, owner: str | None, upload: str) -> Way:
    """What is missing of an announced file, with new addresses.

    Raises: NotFound, StoreDown.
    """
    queue, bucket = _direct(remote)
    arrival = queue.arrivals.one(upload, owner)
    return bucket.announce(arrival.key, arrival.size_bytes, new=False)


def arrived(
    remote: Remote, owner: str | None, upload: str, known: Callable[[str], bool] = lambda _: True
) -> list[Upload]:
    """Keep an announced file that is all there; as `take`.

    Raises: NotFound. Unfit: it is not all there, or differs; it can be sent again. VisualprofError: as `take`.
    """
    queue, bucket = _direct(remote)
    arrival = queue.arrivals.one(upload, owner)
    blob = bucket.adopt(arrival.key, arrival.size_bytes, arrival.sha256)
    queue.add(blob, arrival.name, arrival.size_bytes)
    _end(queue, arrival)
    return _uploads_of(queue, blob, arrival.size_bytes, arrival.name, arrival.part, known)


def give_up(remote: Remote, owner: str | None, upload: str) -> None:
    """Await a file no more.

    Raises: NotFound.
    """
    queue, _ = _direct(remote)
    _end(queue, queue.arrivals.one(upload, owner))


def _end(queue: Queue, arrival: Arrival) -> None:
    queue.arrivals.end(arrival.id)
    with contextlib.suppress(StoreDown):  # upkeep removes it, too
        queue.store.delete(arrival.key)


def _direct(remote: Remote) -> tuple[Queue, Bucket]:
    queue = remote.opened()
    if not isinstance(queue.store, Bucket):
        raise Conflict(
            msg("queue.files_come_through_server", "files come through this server"),
            msg("queue.send_them_post_api", "send them: POST /api/v1/uploads"),
        )
    return queue, queue.store


def _uploads_of(
    queue: Queue, blob: str, size: int, name: str, part: bool, known: Callable[[str], bool]
) -> list[Upload]:
    """What is in a file that is kept; it is not, if that is of no use."""
    try:
        if part:
            return [_remembered(queue, blob, name, size, InspectedPart(size))]
        packed = _packed(queue.blobs.path(blob), name)
        if packed:
            uploads = _unpacked(queue, queue.blobs.path(blob), packed, known)
            queue.blobs.forget(blob)
            return uploads
        return [_inspected(queue, blob, safe_name(name), size, known(blob))]
    except BaseException:
        queue.blobs.forget(blob)
        raise


def again(remote: Remote, blob: str, name: str, part: bool = False) -> Upload:
    """A file that is here already, as if it had been sent under this name.

    Raises: NotFound: it is not here. VisualprofError: as `take`.
    """
    queue = remote.opened()
    size = queue.blobs.again(blob, name)
    if part:
        return _remembered(queue, blob, name, size, InspectedPart(size))
    return _inspected(queue, blob, safe_name(name), size)


def graph_of(blob: str, format: str) -> str | None:
    """Id of a kept model on the Graph page; of a format that only a backend knows there is none."""
    return f"upload:{blob}" if any(model.name == format for model in all_models()) else None


def _inspected(queue: Queue, blob: str, name: str, size: int, known: bool = True) -> Upload:
    kept = queue.blobs.inspected(blob) if known else None
    found = from_json(kept) if kept else None
    if found is None or isinstance(found, InspectedPart):
        found = inspect_file(queue.blobs.path(blob), name)
    return _remembered(queue, blob, name, size, found)


def _remembered(queue: Queue, blob: str, name: str, size: int, content: Inspected) -> Upload:
    graph = None
    if isinstance(content, InspectedModel):
        name, graph = model_name(name, content.format), graph_of(blob, content.format)
        content = under(name, content)
    kept = queue.blobs.inspected(blob)
    if not isinstance(content, InspectedPart) or kept is None:  # what is a model stays one, whatever it is beside
        queue.blobs.remember(blob, name, {**as_json(content), "graph": graph, "name": name, "size_bytes": size})
    return Upload(blob, name, size, content)


def _packed(path: Path, name: str) -> list[str]:
    """The files of a zip that is no model itself: arrays, or one model and what lies beside it, model first.

    Raises: FormatError: it is no zip that can be opened, or there are several models in it.
    """
    names = zips.members(path, name)
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


def _unpacked(queue: Queue, path: Path, names: Sequence[str], known: Callable[[str], bool]) -> list[Upload]:
    """The files of a zip, each kept: of those beside a model only what it names."""
    uploads: list[Upload] = []
    with zipfile.ZipFile(path) as archive:
        for member in names:
            below = member.removeprefix(names[0].rpartition("/")[0]).lstrip("/")
            first = uploads[0].content if uploads else None
            wanted = {file.path for file in first.external} if isinstance(first, InspectedModel) else None
            if wanted is not None and below not in wanted:
                continue
            with archive.open(member) as file:
                blob, size = queue.keep(safe_name(member), file.read)
            if wanted is None:
                uploads.append(_inspected(queue, blob, safe_name(member), size, known(blob)))
            else:
                uploads.append(_remembered(queue, blob, below, size, InspectedPart(size)))
    return uploads


def take_local(remote: Remote, files: Mapping[str, Path], part: bool = False) -> list[Upload]:
    """Keep a model, which comes first, and files with weights of it that lie on this machine, by their names.

    part: nothing is looked for in the first, either.

    Raises: VisualprofError: as `take`.
    """
    queue = remote.opened()
    uploads: list[Upload] = []
    for name, path in files.items():
        with path.open("rb") as file:
            kept = queue.keep(safe_name(name), file.read)
        uploads += _uploads_of(queue, *kept, name, part=part or bool(uploads), known=lambda _: True)
    return uploads


def counted(queue: Queue, blob: str, name: str) -> InspectedModel | None:
    """What is in a kept model, its operators too, which earlier versions did not count; None when it is no model.

    Raises: VisualprofError: as `take`.
    """
    kept = queue.blobs.inspected(blob)
    found = from_json(kept) if kept else None
    if kept and isinstance(found, InspectedModel) and "operators" not in kept:
        found = inspect_file(queue.blobs.path(blob), name)
        queue.blobs.remember(blob, name, {**kept, **as_json(found)})
    return found if isinstance(found, InspectedModel) else None


def kept(remote: Remote, names: Sequence[str], owner: str | None) -> list[Upload]:
    """Kept files by their sha256, in this order, as their owner calls them; those that are gone are left out."""
    queue = remote.existing()
    if queue is None:
        return []
    rows, own = queue.blobs.known(names), queue.blobs.names(names, owner)
    return [
        Upload(
            name,
            own.get(name, str(rows[name].name)),
            rows[name].size_bytes,
            from_json(msgspec.json.decode(rows[name].inspected)),
        )
        for name in dict.fromkeys(names)
        if name in rows
    ]


def fetched(remote: Remote, path: Path) -> None:
    """Bring a kept model to where `kept_models` says that it is.

    Raises: NotFound, StoreDown.
    """
    remote.opened().blobs.path(path.name)


def kept_models(remote: Remote, viewer: str | None = None, id: str = "") -> list[KeptModel]:
    """The models among the kept files that somebody may see, or of all, the latest first, for the Graph page.

    id: only this one, however old it is.
    """
    queue = remote.existing()
    if queue is None:
        return []
    models: list[KeptModel] = []
    rows = queue.blobs.models(LISTED, viewer, id.removeprefix("upload:"))
    own = queue.blobs.names([row.sha256 for row in rows], viewer)
    for row in rows:
        path = queue.store.local(row.sha256)
        if not (queue.store.direct or path.is_file()):  # somebody tidied up
            continue
        found = msgspec.json.decode(row.inspected)
        names = ", ".join(found.get("names", [row.name])) if viewer is None else own.get(row.sha256, "")
        if graph := graph_of(row.sha256, found["format"]):
            models.append(KeptModel(graph, names, path, found["format"], row.size_bytes, row.kept_ns))
    return models
