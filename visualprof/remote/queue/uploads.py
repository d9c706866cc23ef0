"""Uploaded files: kept when a job can use them, with what was found in them; gone again when not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from sqlalchemy import delete, select

from visualprof.errors import NotFound
from visualprof.remote.queue.check.inspect import (
    InspectedArray,
    InspectedModel,
    as_json,
    from_json,
    inspect_file,
    model_name,
    safe_name,
)
from visualprof.remote.queue.service import Queue, Remote
from visualprof.remote.queue.store.files import Read
from visualprof.remote.queue.store.tables import blobs

GRAPH = "upload:"  # before the sha256: the id of a kept model on the Graph page
LISTED = 200


@dataclass(frozen=True)
class Upload:
    """A file that was kept."""

    blob: str
    name: str
    size: int
    content: InspectedModel | InspectedArray


@dataclass(frozen=True)
class KeptModel:
    """A model among the kept files."""

    id: str
    name: str
    path: Path
    format: str
    size: int
    kept_ns: int


def take(remote: Remote, name: str, read: Read) -> Upload:
    """Keeps a file and finds out what it is; the same content again is not read again.

    Raises: VisualprofError: nothing can be kept here, or the file is of no use; it is not kept then.
    """
    name, queue = safe_name(name), remote.opened()
    blob, size = queue.keep(name, read)
    kept = queue.blobs.inspected(blob)
    try:
        content = from_json(kept) if kept else inspect_file(queue.blobs.path(blob), name)
    except BaseException:
        _forget(queue, blob)
        raise
    graph = None
    if isinstance(content, InspectedModel):
        name, graph = model_name(name, content.format), GRAPH + blob
    queue.blobs.remember(blob, name, {**as_json(content), "graph": graph, "name": name})
    return Upload(blob, name, size, content)


def kept(remote: Remote, names: Sequence[str]) -> list[Upload]:
    """Kept files by their sha256, in this order; those that are gone are left out."""
    queue = remote.existing()
    if queue is None:
        return []
    with queue.database.read() as connection:
        known = select(blobs).where(blobs.c.sha256.in_(names), blobs.c.inspected.is_not(None))
        rows = {row.sha256: row for row in connection.execute(known)}
    return [
        Upload(name, rows[name].name, rows[name].size_bytes, from_json(msgspec.json.decode(rows[name].inspected)))
        for name in dict.fromkeys(names)
        if name in rows
    ]


def kept_models(remote: Remote) -> list[KeptModel]:
    """The models among the kept files, the latest first, for the Graph page."""
    queue = remote.existing()
    if queue is None:
        return []
    of_model = select(blobs).where(blobs.c.inspected.contains('"kind":"model"')).order_by(blobs.c.kept_ns.desc())
    with queue.database.read() as connection:
        rows = connection.execute(of_model.limit(LISTED)).all()
    models: list[KeptModel] = []
    for row in rows:
        try:
            path = queue.blobs.path(row.sha256)
        except NotFound:  # somebody tidied up
            continue
        kind: str = msgspec.json.decode(row.inspected)["format"]
        models.append(KeptModel(GRAPH + row.sha256, row.name, path, kind, row.size_bytes, row.kept_ns))
    return models


def _forget(queue: Queue, blob: str) -> None:
    """Removes a file that was never of use; one that jobs may name stays."""
    useless = (blobs.c.sha256 == blob) & blobs.c.inspected.is_(None)
    with queue.database.write() as connection:
        gone = connection.execute(delete(blobs).where(useless)).rowcount
    if gone:
        queue.store.delete(f"blobs/{blob}")
