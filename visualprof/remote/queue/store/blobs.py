"""Uploaded files, stored once by content, and the results of their inspection."""

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

_INSPECTION_OF = select(blobs.c.inspected).where(blobs.c.sha256 == bindparam("digest"))
_is_held = (holders.c.sha256 == blobs.c.sha256) & holders.c.owner.in_(bindparam("owners", expanding=True))
_NAMES_AND_INSPECTIONS = (  # of files, with the names that some owners give them
    select(blobs.c.sha256, blobs.c.name, blobs.c.inspected, holders.c.owner, holders.c.name.label("own_name"))
    .outerjoin(holders, _is_held)
    .where(blobs.c.sha256.in_(bindparam("digests", expanding=True)))
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


class _GraphOfInspection(msgspec.Struct):
    """The part of an inspection that lists of jobs need; the rest is long."""

    graph: str | None = None


_GRAPH = msgspec.json.Decoder(_GraphOfInspection)


class Blobs:
    """Uploaded files by sha256."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._store = store

    def put(self, name: str, read: ReadChunk, limit: int = MAX_BLOB_BYTES) -> tuple[str, int]:
        """Store a file. The name is only for display.

        Returns:
            The file's sha256 and size.

        Raises:
            PayloadTooLarge: The file is larger than `limit`.
            DiskFull: The disk is full.
        """
        sha256, size = self._store.put(read, limit)
        self.add(sha256, name, size)
        return sha256, size

    def add(self, sha256: str, name: str, size: int) -> None:
        """Add a row for a file that is in the store."""
        row = {"name": display_name(name), "size_bytes": size, "kept_ns": self._database.now_ns()}
        try:
            with self._database.write() as connection:
                connection.execute(insert(blobs).values(sha256=sha256, **row))
        except IntegrityError:  # the file is stored already; the latest name wins
            with self._database.write() as connection:
                connection.execute(update(blobs).where(blobs.c.sha256 == sha256).values(row))

    def reuse(self, sha256: str, name: str) -> int:
        """Mark a stored file as used again, under this name; return its size.

        Raises:
            NotFound: The file is not stored or was not inspected.
        """
        self._store.require(_key(sha256))
        is_inspected = blobs.c.inspected.is_not(None)
        with self._database.write() as connection:
            statement = update(blobs).where((blobs.c.sha256 == sha256) & is_inspected)
            if not connection.execute(
                statement.values(name=display_name(name), kept_ns=self._database.now_ns())
            ).rowcount:
                raise NotFound(
                    msg("queue.file_not_here_2", f"the file {sha256} is not here"), msg("queue.upload", "upload it")
                )
            return int(connection.execute(select(blobs.c.size_bytes).where(blobs.c.sha256 == sha256)).scalar_one())

    def add_holder(self, owner: str, files: Mapping[str, tuple[str, int]]) -> None:
        """Record that a user uploaded files, with the names that they used last.

        Args:
            owner: Id of the user.
            files: Names and sizes by sha256.

        Raises:
            QuotaExceeded: The files exceed the owner's quota. Files that no one else holds are deleted.
        """
        existing = select(holders.c.sha256).where(holders.c.owner == owner, holders.c.sha256.in_(files))
        try:
            with self._database.write() as connection:
                held = set(connection.execute(existing).scalars())
                added = {sha256: file for sha256, file in files.items() if sha256 not in held}
                check_upload_quota(connection, owner, sum(size for _, size in added.values()))
                for sha256, (name, _) in files.items():
                    statement = insert(holders).values(sha256=sha256, owner=owner, name=display_name(name))
                    if sha256 in held:
                        statement = (
                            update(holders).filter_by(sha256=sha256, owner=owner).values(name=display_name(name))
                        )
                    connection.execute(statement)
        except IntegrityError:  # another server recorded one of them at the same time
            self.add_holder(owner, files)
        except QuotaExceeded:
            self._delete_unneeded(files)
            raise

    def _delete_unneeded(self, files: Iterable[str]) -> None:
        """Delete the files that are no longer needed."""
        with self._database.write() as connection:
            deleted = delete_unneeded(connection, files)
        for sha256 in deleted:
            self._store.delete(f"blobs/{sha256}")

    def names(self, digests: Iterable[str], owner: str | None) -> dict[str, str]:
        """Return names by sha256: of the owner's uploads, and of files of registered models that they may see.

        The names that other users gave are secret.
        """
        if owner is None:
            return {}
        digest_list = list(digests)
        own_names = select(holders.c.sha256, holders.c.name).where(
            holders.c.sha256.in_(digest_list), holders.c.owner == owner
        )
        registered_names = _registered_files(owner).where(version_files.c.sha256.in_(digest_list))
        with self._database.read() as connection:
            return {row[0]: row[1] for query in (registered_names, own_names) for row in connection.execute(query)}

    def path(self, sha256: str) -> Path:
        """Return the path of a file.

        Raises:
            NotFound: The file is not stored.
        """
        path = self._store.path(_key(sha256))
        if not path.is_file():
            raise NotFound(
                msg("queue.file_not_here_2", f"the file {sha256[:64]!r} is not here"), msg("queue.upload", "upload it")
            )
        return path

    def save_inspection(self, sha256: str, name: str, content: dict[str, Any]) -> None:
        """Save the result of an inspection.

        Args:
            sha256: Digest of the file.
            name: Latest name of the file. "names" of the saved inspection lists all names, the first one first.
            content: JSON types; "graph" is the model's id on the Graph page.
        """
        names = list(dict.fromkeys([*(self.inspection(sha256) or {}).get("names", []), display_name(name)]))
        values = {"name": display_name(name), "inspected": msgspec.json.encode({**content, "names": names}).decode()}
        with self._database.write() as connection:
            connection.execute(update(blobs).where(blobs.c.sha256 == sha256).values(values))

    def inspection(self, sha256: str) -> dict[str, Any] | None:
        """Return the result of a file's inspection; None if the file was not inspected or is not stored."""
        with self._database.query() as connection:
            text = connection.execute(_INSPECTION_OF, {"digest": sha256}).scalar()
        return msgspec.json.decode(text) if text else None

    def inspected_rows(self, digests: Sequence[str]) -> dict[str, AnyRow]:
        """Return the rows of inspected files."""
        query = select(blobs).where(blobs.c.sha256.in_(digests), blobs.c.inspected.is_not(None))
        with self._database.query() as connection:
            return {row.sha256: row for row in connection.execute(query)}

    def models(self, limit: int, viewer: str | None, sha256: str = "") -> Sequence[AnyRow]:
        """Return the rows of models whose `names` a viewer may know, latest first. None sees all.

        Args:
            limit: Maximum number of rows.
            viewer: Id of a user, or None.
            sha256: Only this file.
        """
        query = select(blobs).where(blobs.c.inspected.contains('"kind":"model"')).order_by(blobs.c.kept_ns.desc())
        if sha256:
            query = query.where(blobs.c.sha256 == sha256)
        if viewer is not None:
            held = select(holders.c.sha256).where(holders.c.owner == viewer)
            registered = _registered_files(viewer).with_only_columns(version_files.c.sha256)
            query = query.where(blobs.c.sha256.in_(held) | blobs.c.sha256.in_(registered))
        with self._database.query() as connection:
            return connection.execute(query.limit(limit)).all()

    def delete_unused(self, sha256: str) -> None:
        """Delete a file that was not inspected successfully; a file that jobs may use stays."""
        unused = (blobs.c.sha256 == sha256) & blobs.c.inspected.is_(None)
        with self._database.write() as connection:
            deleted = connection.execute(delete(blobs).where(unused)).rowcount
        if deleted:
            self._store.delete(f"blobs/{sha256}")

    def names_and_graphs(
        self, digests_and_owners: set[tuple[str, str | None]]
    ) -> dict[tuple[str, str | None], tuple[str, str | None]]:
        """Return the owner's name of each file and its id on the Graph page, by sha256 and owner."""
        digests, owners = (
            sorted({sha256 for sha256, _ in digests_and_owners}),
            sorted({owner or "" for _, owner in digests_and_owners}),
        )
        with self._database.query() as connection:
            rows = connection.execute(_NAMES_AND_INSPECTIONS, {"digests": digests, "owners": owners}).all()
        files = {row.sha256: (str(row.name), _graph(row.inspected)) for row in rows}
        names_of_owners = {(row.sha256, row.owner): str(row.own_name) for row in rows if row.owner is not None}
        stored = {key: files[key[0]] for key in digests_and_owners if key[0] in files}
        return {key: (names_of_owners.get(key, name), graph) for key, (name, graph) in stored.items()}


def used_by_job() -> ColumnElement[bool]:
    """Return a condition on `blobs`: a job uses the file."""
    return exists().where(jobs.c.request.contains(blobs.c.sha256))


def used_by_version() -> ColumnElement[bool]:
    """Return a condition on `blobs`: a registered model uses the file."""
    return exists().where(version_files.c.sha256 == blobs.c.sha256)


def delete_unneeded(connection: Connection, digests: Iterable[str]) -> list[str]:
    """Delete the rows of files without holder, job and registered model; return the files' digests."""
    has_holder = exists().where(holders.c.sha256 == blobs.c.sha256)
    is_needed = has_holder | used_by_job() | used_by_version()
    unneeded = select(blobs.c.sha256).where(blobs.c.sha256.in_(list(digests)), ~is_needed)
    deleted = list(connection.execute(unneeded).scalars())
    connection.execute(delete(blobs).where(blobs.c.sha256.in_(deleted)))
    return deleted


def _key(sha256: str) -> str:
    if not _SHA256.fullmatch(sha256):
        raise NotFound(
            msg("queue.file_not_here_2", f"the file {sha256[:64]!r} is not here"), msg("queue.upload", "upload it")
        )
    return f"blobs/{sha256}"


def _registered_files(viewer: str) -> Any:
    """Return a query for the files of registered models that a viewer may see, with their names."""
    visible = visible_models(viewer).with_only_columns(models.c.id)
    return select(version_files.c.sha256, version_files.c.path).where(version_files.c.model.in_(visible))


def _graph(inspected: str | None) -> str | None:
    return _GRAPH.decode(inspected).graph if inspected else None
