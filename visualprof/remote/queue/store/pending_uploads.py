"""Uploads that users send to a bucket directly: who announced which, until they are complete."""

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

UPLOAD_TIMEOUT_NS = 24 * 3600 * 10**9  # then an incomplete upload is dropped


@dataclass(frozen=True)
class PendingUpload:
    """An announced upload.

    Attributes:
        id: Id of the upload.
        owner: Id of the user; None without accounts.
        name: Name of the file.
        size_bytes: Announced size.
        sha256: Announced digest, "" if unknown.
        part: Whether the file contains weights of a model.
    """

    id: str
    owner: str | None
    name: str
    size_bytes: int
    sha256: str
    part: bool

    @property
    def key(self) -> str:
        """Key of the upload in the store."""
        return f"incoming/{self.id}/{self.id}"


class PendingUploads:
    """The `uploads` table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, owner: str | None, name: str, size: int, sha256: str, part: bool) -> tuple[PendingUpload, bool]:
        """Announce an upload. The same content resumes an earlier upload.

        Returns:
            The upload, and whether it is new.

        Raises:
            QuotaExceeded: The upload exceeds the owner's quota.
        """
        same_content = (uploads.c.owner == owner, uploads.c.sha256 == sha256, uploads.c.size_bytes == size)
        with self._database.write() as connection:
            row = (
                connection.execute(select(uploads).where(*same_content, uploads.c.part == part)).first()
                if sha256
                else None
            )
            if row is not None:
                return PendingUpload(row.id, row.owner, row.name, row.size_bytes, row.sha256, row.part), False
            if owner is not None:
                check_upload_quota(connection, owner, size)
            upload = PendingUpload(uuid.uuid4().hex, owner, display_name(name), size, sha256, part)
            connection.execute(insert(uploads).values(**vars(upload), begun_ns=self._database.now_ns()))
        return upload, True

    def get(self, upload_id: str, owner: str | None) -> PendingUpload:
        """Return an announced upload.

        Raises:
            NotFound: There is no such upload, or it belongs to another user.
        """
        with self._database.read() as connection:
            row = connection.execute(select(uploads).where(uploads.c.id == upload_id, uploads.c.owner == owner)).first()
        if row is None:
            raise NotFound(
                msg("queue.upload_not_awaited", "this upload is not awaited"),
                msg("queue.announce_again", "announce it again"),
            )
        return PendingUpload(row.id, row.owner, row.name, row.size_bytes, row.sha256, row.part)

    def remove(self, upload_id: str) -> None:
        """Remove a finished or canceled upload."""
        with self._database.write() as connection:
            connection.execute(delete(uploads).where(uploads.c.id == upload_id))
