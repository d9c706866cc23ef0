"""File store in a bucket of an S3-compatible service. Browsers and agents access the bucket with signed URLs.

Keys are as in `files`, below the bucket's prefix. Files that this server reads are cached in a folder; the least
recently used copies are removed first. The sender of a file may overwrite it until its URL expires, so an upload is
never used in place: while its sha256 is computed, it is copied to the log directory or to a blob.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from typing import Any

from visualprof.errors import NotFound, VisualprofError
from visualprof.messages import msg
from visualprof.remote.queue.errors import InvalidResult, StoreUnavailable, disk_errors
from visualprof.remote.queue.store.blob_cache import BlobCache, touch_access_time
from visualprof.remote.queue.store.bucket_url import BucketLocation
from visualprof.remote.queue.store.files import CHUNK_BYTES, Namespace, PartUpload, ReadChunk, Store, UploadPlan
from visualprof.remote.queue.store.s3_client import create_client
from visualprof.remote.queue.store.signing import PUT_VALID_S, Signer

_log = logging.getLogger(__name__)

PART_BYTES = 16 << 20  # larger files are uploaded in parts
MAX_PART_URLS = 32  # URLs of parts per answer, because URLs expire after 15 minutes
_MAX_PAUSE_S = 15.0
_DOWNLOAD_TIMEOUT_S, _MIN_BYTES_PER_S = 60.0, 256 << 10  # for a file, plus its size at this rate
_MULTIPART_COPY_BYTES = 1 << 30  # larger files are copied in parts of a quarter of this size
_NOT_FOUND_CODES = {"404", "NoSuchKey", "NoSuchUpload", "NotFound"}


class Bucket(Store):
    """Files by key, in a bucket.

    Args:
        folder: Folder of the local copies.
        signer: Signer of the base class; a bucket signs its own URLs.
        location: Location of the bucket.
        cache_bytes: Maximum size of the local copies. Copies used within the last minute stay in any case.

    Raises:
        VisualprofError: The library is missing, or the service rejects the credentials. A service that does not answer
            is only logged.
    """

    direct_uploads = True

    def __init__(self, folder: Path, signer: Signer, location: BucketLocation, cache_bytes: int) -> None:
        super().__init__(folder, signer)
        self.location, self.cache = location, BlobCache(folder / "blobs", cache_bytes)
        self._client, self._signing_client = (
            create_client(location, location.endpoint),
            create_client(location, location.public),
        )
        self._download_locks = [threading.Lock() for _ in range(64)]
        # No request before this time: if all server threads waited for the service, no page would be answered.
        self._retry_at = 0.0
        try:
            with self._translate_errors():
                self._client.head_bucket(Bucket=location.bucket)
        except StoreUnavailable as error:
            if error.refused:
                raise VisualprofError(
                    error.error, msg("queue.bucket_credentials_right", "are the bucket and the credentials right?")
                ) from error
            _log.warning("%s", error.error)
        except NotFound as error:
            raise VisualprofError(
                msg("queue.there_no", f"there is no {location}"),
                msg("queue.make_bucket_first", "make the bucket first"),
            ) from error

    def path(self, key: str) -> Path:
        """Return the path of a blob's local copy, after downloading it if necessary.

        Raises:
            NotFound: The blob does not exist.
            StoreUnavailable: The service does not answer.
            DiskFull: The disk is full.
        """
        path = super().path(key)
        with self._download_locks[hash(key) % 64], disk_errors(f"{self._folder}"):
            if not path.is_file():
                with self.cache.temporary_file() as part:
                    if self._download(key, part)[1] != path.name:
                        raise VisualprofError(
                            msg("queue.damaged", f"{key} is damaged in {self.location}"),
                            msg("queue.upload_file_again", "upload the file again"),
                        )
                    self.cache.add(part, path)
        touch_access_time(path)
        return path

    def put(self, read: ReadChunk, limit: int) -> tuple[str, int]:
        """Store a blob that this server created from an archive.

        Returns:
            The sha256 and the size.

        Raises:
            PayloadTooLarge: The blob is larger than `limit`.
            DiskFull: The disk is full.
            StoreUnavailable: The service does not answer.
        """
        digest, size = super().put(read, limit)
        with super().path(f"blobs/{digest}").open("rb") as file, self._translate_errors():
            self._client.upload_fileobj(file, self.location.bucket, self._key_in_bucket(f"blobs/{digest}"))
        self.cache.trim()
        return digest, size

    def finalize(self, key: str, size: int, sha256: str = "") -> str:
        """Turn a complete upload into a blob.

        Args:
            key: Key of the upload.
            size: Announced size.
            sha256: Announced digest, "" if unknown.

        Returns:
            The sha256.

        Raises:
            InvalidResult: The upload is incomplete, or it differs and was deleted.
            DiskFull: The disk is full.
            StoreUnavailable: The service does not answer.
        """
        received = self.received_bytes(key, size)
        if received < size:
            raise InvalidResult(
                msg("queue.file_bytes", f"the file has {received} of {size} bytes"),
                msg("queue.upload_rest", "upload the rest"),
            )
        with disk_errors(f"{self._folder}"), self.cache.temporary_file() as part:
            tag, digest = self._download(key, part, size)
            if sha256 not in ("", digest) or part.stat().st_size != size:
                self.delete(key)
                raise InvalidResult(
                    msg("queue.file_differs_what_announced", "the file does not match its announced size or hash"),
                    msg("queue.upload_again", "upload it again"),
                )
            self._copy(key, f"blobs/{digest}", tag)
            self.cache.add(part, super().path(f"blobs/{digest}"))
        return digest

    def begin_upload(self, key: str, size: int, is_new: bool = True) -> UploadPlan:
        """Sign URLs for the missing bytes of a file. The upload of a large file resumes with its missing parts.

        Raises:
            StoreUnavailable: The service does not answer.
        """
        if size == 0 or (not is_new and self._size(key) == size):
            return UploadPlan(size)
        if size <= PART_BYTES:
            return UploadPlan(0, parts=[PartUpload(0, size, self._sign("put_object", key, ContentLength=size))])
        upload = self._find_multipart(key) or self._create_multipart(key)
        received = {number: part["Size"] for number, part in self._parts(key, upload).items()}
        lengths = {
            number: min(PART_BYTES, size - offset) for number, offset in enumerate(range(0, size, PART_BYTES), 1)
        }
        missing = [number for number, length in lengths.items() if received.get(number) != length]
        have = size - sum(lengths[number] for number in missing)
        parts = [
            PartUpload(
                (number - 1) * PART_BYTES,
                lengths[number],
                self._sign("upload_part", key, UploadId=upload, PartNumber=number, ContentLength=lengths[number]),
            )
            for number in missing[:MAX_PART_URLS]
        ]
        return UploadPlan(have, parts=parts)

    def received_bytes(self, key: str, size: int) -> int:
        """Return how many bytes of a file of this size have arrived. The parts of a complete file are joined."""
        if size == 0 or (size_there := self._size(key)) == size:
            return size
        if size <= PART_BYTES or size_there is not None:
            return size_there or 0
        upload = self._find_multipart(key)
        parts = self._parts(key, upload) if upload else {}
        received = sum(part["Size"] for part in parts.values())
        if received == size:
            part_tags = [{"PartNumber": number, "ETag": parts[number]["ETag"]} for number in sorted(parts)]
            with self._translate_errors():
                self._client.complete_multipart_upload(
                    **self._address(key), UploadId=upload, MultipartUpload={"Parts": part_tags}
                )
        return received

    def download(self, key: str, size: int, target: Path) -> str:
        """Download an uploaded file to `target`; return the sha256 of the copy.

        Raises:
            NotFound: The file was not uploaded.
            StoreUnavailable: The service does not answer.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        if size == 0:
            target.touch()
            return hashlib.sha256().hexdigest()
        return self._download(key, target, size)[1]

    def put_file(self, path: Path, key: str) -> None:
        """Upload a file of a run.

        Raises:
            StoreUnavailable: The service does not answer.
        """
        with path.open("rb") as file, self._translate_errors():
            self._client.upload_fileobj(file, self.location.bucket, self._key_in_bucket(key))

    def delete(self, prefix: str) -> None:
        """Delete the local copy of a blob, or uploads in progress.

        Maintenance deletes the blob itself when no row references it, so that transactions do not wait for the service.
        """
        super().delete(prefix)
        if prefix.startswith("blobs/"):
            return
        prefix_in_bucket = self._key_in_bucket(prefix) + ("" if prefix.count("/") == 2 else "/")
        for key in self._list("list_objects_v2", "Contents", prefix_in_bucket):
            with self._translate_errors():
                self._client.delete_object(Bucket=self.location.bucket, Key=key["Key"])
        for upload in self._list("list_multipart_uploads", "Uploads", prefix_in_bucket):
            with self._translate_errors(), contextlib.suppress(NotFound):
                self._client.abort_multipart_upload(
                    Bucket=self.location.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )

    def delete_blob(self, blob: str) -> None:
        """Delete a blob that no row references, and its local copy."""
        super().delete(f"blobs/{blob}")
        with self._translate_errors():
            self._client.delete_object(**self._address(f"blobs/{blob}"))

    def list_names(self, namespace: Namespace) -> list[str]:
        """Return the names in a namespace of the bucket: blobs, or folders of uploads."""
        prefix = self._key_in_bucket(f"{namespace}/")
        keys = [row["Key"] for row in self._list("list_objects_v2", "Contents", prefix)]
        if namespace == "incoming":
            keys += [row["Key"] for row in self._list("list_multipart_uploads", "Uploads", prefix)]
        return sorted({key.removeprefix(prefix).partition("/")[0] for key in keys})

    def run_files(self, age_s: float = float("-inf")) -> set[str]:
        """Return the keys of files of runs that are older than `age_s`.

        Raises:
            StoreUnavailable: The service does not answer.
        """
        rows, prefix = self._list("list_objects_v2", "Contents", self._key_in_bucket("runs/")), self.location.prefix
        return {
            row["Key"].removeprefix(prefix) for row in rows if time.time() - row["LastModified"].timestamp() > age_s
        }

    def delete_run_file(self, key: str) -> None:
        """Delete a file of a run that no row references."""
        with self._translate_errors():
            self._client.delete_object(**self._address(key))

    def age_s(self, blob: str) -> float:
        """Return the age of a blob; 0 if it does not exist."""
        head = self._head(f"blobs/{blob}")
        return 0.0 if head is None else time.time() - head["LastModified"].timestamp()

    def require(self, key: str) -> None:
        """Check that a file exists.

        Raises:
            NotFound: The file does not exist.
            StoreUnavailable: The service does not answer.
        """
        if self._head(key) is None:
            raise NotFound(msg("queue.gone", f"{key} is gone"))

    def get_url(self, key: str, name: str) -> str:
        """Return a signed URL for reading a file, valid for 15 minutes."""
        del name
        return self._sign("get_object", super().path(key).relative_to(self._folder).as_posix())

    def _sign(self, operation: str, key: str, **parameters: Any) -> str:
        with self._translate_errors():
            return self._signing_client.generate_presigned_url(
                operation, {**self._address(key), **parameters}, ExpiresIn=PUT_VALID_S
            )

    def _key_in_bucket(self, key: str) -> str:
        return f"{self.location.prefix}{key}"

    def _address(self, key: str) -> dict[str, str]:
        return {"Bucket": self.location.bucket, "Key": self._key_in_bucket(key)}

    def _head(self, key: str) -> dict[str, Any] | None:
        with contextlib.suppress(NotFound), self._translate_errors():
            return self._client.head_object(**self._address(key))
        return None

    def _size(self, key: str) -> int | None:
        head = self._head(key)
        return None if head is None else int(head["ContentLength"])

    def _create_multipart(self, key: str) -> str:
        with self._translate_errors():
            return self._client.create_multipart_upload(**self._address(key))["UploadId"]

    def _find_multipart(self, key: str) -> str | None:
        """Return the id of a multipart upload. If two servers created one, both find the same."""
        rows = self._list("list_multipart_uploads", "Uploads", self._key_in_bucket(key))
        return min((row["UploadId"] for row in rows), default=None)

    def _parts(self, key: str, upload: str) -> dict[int, dict[str, Any]]:
        with self._translate_errors():
            pages = self._client.get_paginator("list_parts").paginate(**self._address(key), UploadId=upload)
            return {part["PartNumber"]: part for page in pages for part in page.get("Parts", [])}

    def _list(self, operation: str, field: str, prefix: str) -> list[dict[str, Any]]:
        with self._translate_errors():
            pages = self._client.get_paginator(operation).paginate(Bucket=self.location.bucket, Prefix=prefix)
            return [row for page in pages for row in page.get(field, [])]

    def _copy(self, key: str, target: str, tag: str) -> None:
        """Copy a file within the service, if it still has the tag of the verified content."""
        transfer: Any = import_module("boto3.s3.transfer")
        config = transfer.TransferConfig(
            multipart_threshold=_MULTIPART_COPY_BYTES, multipart_chunksize=_MULTIPART_COPY_BYTES // 4
        )
        condition = {"CopySourceIfMatch": tag}
        with self._translate_errors():
            self._client.copy(
                self._address(key),
                self.location.bucket,
                self._key_in_bucket(target),
                ExtraArgs=condition,
                Config=config,
            )

    def _download(self, key: str, target: Path, max_bytes: int = 1 << 62) -> tuple[str, str]:
        """Download a file, reading little more than `max_bytes`; return its tag and sha256."""
        digest, bytes_left = hashlib.sha256(), max_bytes
        with self._translate_errors(), target.open("wb") as file:
            response = self._client.get_object(**self._address(key))
            deadline = time.monotonic() + _DOWNLOAD_TIMEOUT_S + response["ContentLength"] / _MIN_BYTES_PER_S
            while bytes_left >= 0 and (piece := response["Body"].read(CHUNK_BYTES)):
                if time.monotonic() > deadline:
                    raise StoreUnavailable(msg("queue.store_too_slow", f"the store {self.location} is too slow"))
                digest.update(piece)
                file.write(piece)
                bytes_left -= len(piece)
        return response["ETag"], digest.hexdigest()

    @contextlib.contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Translate errors of the service to errors of the queue.

        Raises:
            NotFound: The object does not exist.
            StoreUnavailable: The service does not answer, or it rejects the request.
        """
        exceptions: Any = import_module("botocore.exceptions")
        started = time.monotonic()
        if started < self._retry_at:
            raise StoreUnavailable(msg("queue.store_not_answer", f"the store {self.location} does not answer"))
        try:
            yield
        except (exceptions.ClientError, exceptions.BotoCoreError) as error:
            response: dict[str, Any] = getattr(error, "response", None) or {}  # None if the connection broke
            code, status = (
                response.get("Error", {}).get("Code", ""),
                response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0),
            )
            if code in _NOT_FOUND_CODES:
                raise NotFound(msg("queue.no_such_file", f"{self.location} has no such file")) from error
            _log.warning("%s: %s", self.location, error)
            if not code:  # pause for as long as the failed request took
                self._retry_at = time.monotonic() + min(time.monotonic() - started, _MAX_PAUSE_S)
            error_text = (
                msg("queue.store_answers", f"the store {self.location} answers {code}")
                if code
                else msg("queue.store_not_answer", f"the store {self.location} does not answer")
            )
            raise StoreUnavailable(error_text, refused=400 <= status < 429) from error
