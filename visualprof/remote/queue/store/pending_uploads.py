"""Files that people send to a bucket past this server: who announced which, until they are there."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from visualprof.errors import NotFound
from visualprof.messages import msg
from visualprof.remote.queue.store.database import Database
from visualprof.remote.queue.store.files import display_name
from visualprof.remote.queue.store.quotas import check_upload_quota
from visualprof.remote.queue.store.tables import uploads

UPLOAD_TIMEOUT_NS = 24 * 3600 * 10**9  # what is not there by then is given up


@dataclass(frozen=True)
class PendingUpload:
    """A file that is awaited. sha256: "" where it is not known. part: it has weights of a model."""

    id: str
    owner: str | None
    name: str
    size_bytes: int
    sha256: str
    part: bool

    @property
    def key(self) -> str:
        """Where it arrives in the store."""
        return f"incoming/{self.id}/{self.id}"


class PendingUploads:
    """The table of what is awaited."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, owner: str | None, name: str, size: int, sha256: str, part: bool) -> tuple[PendingUpload, bool]:
        """Await a file, and whether it is a new one: the same content goes on where it broke off.

        Raises: OverQuota: its owner may not have so many bytes more.
        """
        same = (uploads.c.owner == owner, uploads.c.sha256 == sha256, uploads.c.size_bytes == size)
        with self._database.write() as connection:
            row = connection.execute(select(uploads).where(*same, uploads.c.part == part)).first() if sha256 else None
            if row is not None:
                return PendingUpload(row.id, row.owner, row.name, row.size_bytes, row.sha256, row.part), False
            if owner is not None:
                check_upload_quota(connection, owner, size)
            made = PendingUpload(uuid.uuid4().hex, owner, display_name(name), size, sha256, part)
            connection.execute(insert(uploads).values(**vars(made), begun_ns=self._database.now_ns()))
        return made, True

    def get(self, name: str, owner: str | None) -> PendingUpload:
        """What somebody announced.

        Raises: NotFound: nothing of this name, or it is another's.
        """
        with self._database.read() as connection:
            row = connection.execute(select(uploads).where(uploads.c.id == name, uploads.c.owner == owner)).first()
        if row is None:
            raise NotFound(
                msg("queue.upload_not_awaited", "this upload is not awaited"),
                msg("queue.announce_again", "announce it again"),
            )
        return PendingUpload(row.id, row.owner, row.name, row.size_bytes, row.sha256, row.part)

    def remove(self, name: str) -> None:
        """It is there, or of no use."""
        with self._database.write() as connection:
            connection.execute(delete(uploads).where(uploads.c.id == name))
