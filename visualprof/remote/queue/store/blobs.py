"""Uploaded files, kept once by content, and what inspection found in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, bindparam, delete, exists, insert, select, update
from sqlalchemy.exc import IntegrityError

from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.remote.queue.errors import QuotaExceeded
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.files import MAX_BLOB_BYTES, ReadChunk, Store, display_name
from visualprof.remote.queue.store.model_tables import models, version_files
from visualprof.remote.queue.store.quotas import check_upload_quota
from visualprof.remote.queue.store.records import AnyRow
from visualprof.remote.queue.store.tables import blobs, holders, jobs
from visualprof.remote.queue.store.visibility import visible_models

_FOUND = select(blobs.c.inspected).where(blobs.c.sha256 == bindparam("digest"))
_held = (holders.c.sha256 == blobs.c.sha256) & holders.c.owner.in_(bindparam("owners", expanding=True))
_FACTS = (  # of each file, with the names that some give it
    select(blobs.c.sha256, blobs.c.name, blobs.c.inspected, holders.c.owner, holders.c.name.label("own_name"))
    .outerjoin(holders, _held)
    .where(blobs.c.sha256.in_(bindparam("digests", expanding=True)))
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


class _Inspected(msgspec.Struct):
    """As much of what was found in a file as lists of jobs need: the rest is long."""

    graph: str | None = None


_INSPECTED = msgspec.json.Decoder(_Inspected)


class Blobs:
    """Files by sha256."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store

    def put(self, name: str, read: ReadChunk, limit: int = MAX_BLOB_BYTES) -> tuple[str, int]:
        """Store a file; its sha256 and size. The name is only shown.

        Raises: Oversize, DiskFull.
        """
        sha256, size = self._store.put(read, limit)
        self.add(sha256, name, size)
        return sha256, size

    def add(self, sha256: str, name: str, size: int) -> None:
        """Note a file that is in the store."""
        row = {"name": display_name(name), "size_bytes": size, "kept_ns": self._database.now_ns()}
        try:
            with self._database.write() as connection:
                connection.execute(insert(blobs).values(sha256=sha256, **row))
        except IntegrityError:  # it is here already; the latest name wins
            with self._database.write() as connection:
                connection.execute(update(blobs).where(blobs.c.sha256 == sha256).values(row))

    def reuse(self, sha256: str, name: str) -> int:
        """Note that a file that is here was wanted again, under this name; its size.

        Raises: NotFound: it is not here, or nothing was found in it.
        """
        self._store.require(_key(sha256))
        found = blobs.c.inspected.is_not(None)
        with self._database.write() as connection:
            here = update(blobs).where((blobs.c.sha256 == sha256) & found)
            if not connection.execute(here.values(name=display_name(name), kept_ns=self._database.now_ns())).rowcount:
                raise NotFound(
                    msg("queue.file_not_here_2", f"the file {sha256} is not here"), msg("queue.upload", "upload it")
                )
            return int(connection.execute(select(blobs.c.size_bytes).where(blobs.c.sha256 == sha256)).scalar_one())

    def add_holder(self, owner: str, files: Mapping[str, tuple[str, int]]) -> None:
        """Notes who uploaded files, by which name at last. files: names and sizes by sha256.

        Raises: OverQuota: with these they would have more than they may; what nobody holds of them is removed.
        """
        earlier = select(holders.c.sha256).where(holders.c.owner == owner, holders.c.sha256.in_(files))
        try:
            with self._database.write() as connection:
                known = set(connection.execute(earlier).scalars())
                new = {sha256: file for sha256, file in files.items() if sha256 not in known}
                check_upload_quota(connection, owner, sum(size for _, size in new.values()))
                for sha256, (name, _) in files.items():
                    named = insert(holders).values(sha256=sha256, owner=owner, name=display_name(name))
                    if sha256 in known:
                        named = update(holders).filter_by(sha256=sha256, owner=owner).values(name=display_name(name))
                    connection.execute(named)
        except IntegrityError:  # another server noted one of them at the same moment
            self.add_holder(owner, files)
        except QuotaExceeded:
            self._release(files)
            raise

    def _release(self, files: Iterable[str]) -> None:
        """Remove those that nobody needs."""
        with self._database.write() as connection:
            gone = delete_unneeded(connection, files)
        for sha256 in gone:
            self._store.delete(f"blobs/{sha256}")

    def names(self, wanted: Iterable[str], owner: str | None) -> dict[str, str]:
        """What those of the files are called, by sha256, that somebody uploaded or that registered models show them.

        Other names are secrets.
        """
        if owner is None:
            return {}
        named = list(wanted)
        own = select(holders.c.sha256, holders.c.name).where(holders.c.sha256.in_(named), holders.c.owner == owner)
        shown = _shown_files(owner).where(version_files.c.sha256.in_(named))
        with self._database.read() as connection:
            return {row[0]: row[1] for some in (shown, own) for row in connection.execute(some)}

    def path(self, sha256: str) -> Path:
        """Where its bytes are.

        Raises: NotFound.
        """
        path = self._store.path(_key(sha256))
        if not path.is_file():
            raise NotFound(
                msg("queue.file_not_here_2", f"the file {sha256[:64]!r} is not here"), msg("queue.upload", "upload it")
            )
        return path

    def save_inspection(self, sha256: str, name: str, content: dict[str, Any]) -> None:
        """Note what inspection found: JSON's types; "graph" in it is the model's id on the Graph page.

        "names" are all by which the same content was kept, the first one first.
        """
        names = list(dict.fromkeys([*(self.inspection(sha256) or {}).get("names", []), display_name(name)]))
        values = {"name": display_name(name), "inspected": msgspec.json.encode({**content, "names": names}).decode()}
        with self._database.write() as connection:
            connection.execute(update(blobs).where(blobs.c.sha256 == sha256).values(values))

    def inspection(self, sha256: str) -> dict[str, Any] | None:
        """What inspection found; None when the file was not inspected, or is not here."""
        with self._database.query() as connection:
            text = connection.execute(_FOUND, {"digest": sha256}).scalar()
        return msgspec.json.decode(text) if text else None

    def inspected_rows(self, wanted: Sequence[str]) -> dict[str, AnyRow]:
        """Rows of files of which something was found."""
        some = select(blobs).where(blobs.c.sha256.in_(wanted), blobs.c.inspected.is_not(None))
        with self._database.query() as connection:
            return {row.sha256: row for row in connection.execute(some)}

    def models(self, most: int, viewer: str | None, sha256: str = "") -> Sequence[AnyRow]:
        """Rows of models whose `names` somebody may know, or of all for None, the latest first. sha256: only this."""
        of_model = select(blobs).where(blobs.c.inspected.contains('"kind":"model"')).order_by(blobs.c.kept_ns.desc())
        if sha256:
            of_model = of_model.where(blobs.c.sha256 == sha256)
        if viewer is not None:
            own = select(holders.c.sha256).where(holders.c.owner == viewer)
            shown = _shown_files(viewer).with_only_columns(version_files.c.sha256)
            of_model = of_model.where(blobs.c.sha256.in_(own) | blobs.c.sha256.in_(shown))
        with self._database.query() as connection:
            return connection.execute(of_model.limit(most)).all()

    def delete_unused(self, sha256: str) -> None:
        """Remove a file that was never of use; one that jobs may name stays."""
        useless = (blobs.c.sha256 == sha256) & blobs.c.inspected.is_(None)
        with self._database.write() as connection:
            gone = connection.execute(delete(blobs).where(useless)).rowcount
        if gone:
            self._store.delete(f"blobs/{sha256}")

    def names_and_graphs(
        self, wanted: set[tuple[str, str | None]]
    ) -> dict[tuple[str, str | None], tuple[str, str | None]]:
        """Of each file its owner's name for it, and its id on the Graph page, by sha256 and owner."""
        named, owners = sorted({sha256 for sha256, _ in wanted}), sorted({owner or "" for _, owner in wanted})
        with self._database.query() as connection:
            rows = connection.execute(_FACTS, {"digests": named, "owners": owners}).all()
        files = {row.sha256: (str(row.name), _graph(row.inspected)) for row in rows}
        own = {(row.sha256, row.owner): str(row.own_name) for row in rows if row.owner is not None}
        known = {key: files[key[0]] for key in wanted if key[0] in files}
        return {key: (own.get(key, name), graph) for key, (name, graph) in known.items()}


def used_by_job() -> ColumnElement[bool]:
    """Condition on `blobs`."""
    return exists().where(jobs.c.request.contains(blobs.c.sha256))


def used_by_version() -> ColumnElement[bool]:
    """Condition on `blobs`: a registered model has it."""
    return exists().where(version_files.c.sha256 == blobs.c.sha256)


def delete_unneeded(connection: Connection, names: Iterable[str]) -> list[str]:
    """Those of some files that nobody holds, and no job and no registered model names; their rows are gone."""
    held = exists().where(holders.c.sha256 == blobs.c.sha256)
    needed = held | used_by_job() | used_by_version()
    of_nobody = select(blobs.c.sha256).where(blobs.c.sha256.in_(list(names)), ~needed)
    gone = list(connection.execute(of_nobody).scalars())
    connection.execute(delete(blobs).where(blobs.c.sha256.in_(gone)))
    return gone


def _key(sha256: str) -> str:
    if not _SHA256.fullmatch(sha256):
        raise NotFound(
            msg("queue.file_not_here_2", f"the file {sha256[:64]!r} is not here"), msg("queue.upload", "upload it")
        )
    return f"blobs/{sha256}"


def _shown_files(viewer: str) -> Any:
    """The files of registered models that somebody may see, with their names."""
    seen = visible_models(viewer).with_only_columns(models.c.id)
    return select(version_files.c.sha256, version_files.c.path).where(version_files.c.model.in_(seen))


def _graph(inspected: str | None) -> str | None:
    return _INSPECTED.decode(inspected).graph if inspected else None
