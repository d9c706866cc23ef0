"""The store as a bucket of any S3-compatible service. Browsers and agents reach it themselves, by signed addresses.

Keys are as in `files`, below the bucket's prefix. What this server reads of it stays in its folder as a copy, as long
as there is room; the least recently used go first. Whoever sent a file may write it until its address expires, so none
is used where it arrived: a result becomes a file of the log directory while its sha256 is taken, an upload a blob.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Container, Generator, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from visualprof.errors import NotFound, VisualprofError
from visualprof.messages import msg
from visualprof.remote.queue.errors import InvalidResult, StoreUnavailable, disk_errors
from visualprof.remote.queue.store.bucket_url import BucketLocation
from visualprof.remote.queue.store.files import CHUNK_BYTES, Namespace, PartUpload, ReadChunk, Store, UploadPlan
from visualprof.remote.queue.store.signing import PUT_VALID_S, Signer

_log = logging.getLogger(__name__)

PART_BYTES = 16 << 20  # larger files come in parts
MAX_PART_URLS = 32  # addresses of parts at once: they are good for 15 minutes
_PAUSE_S = 15.0
_PATIENCE_S, _SLOWEST = 60.0, 256 << 10  # for a file, and bytes a second that it must come with
_IN_USE_NS = 60 * 10**9
_LARGE = 1 << 30  # a service copies larger ones in pieces of a quarter of it
_GONE = {"404", "NoSuchKey", "NoSuchUpload", "NotFound"}


class Bucket(Store):
    """Files by key, in a bucket.

    Args:
        folder: of the copies.
        signer: of the shape's; nothing is signed with it here.
        place: the bucket.
        most_bytes: of the copies; those that were used within the last minute stay.

    Raises: VisualprofError: the library is missing, or the service does not let us in. One that does not answer may
        do so later.
    """

    direct_uploads = True

    def __init__(self, folder: Path, signer: Signer, place: BucketLocation, most_bytes: int) -> None:
        super().__init__(folder, signer)
        self.location, self._most = place, most_bytes
        self._s3, self._signing = _client(place, place.endpoint), _client(place, place.public)
        self._filling = [threading.Lock() for _ in range(64)]
        self._again = 0.0  # not asked before: requests that all wait for a service would leave none for pages
        try:
            with self._translate_errors():
                self._s3.head_bucket(Bucket=place.bucket)
        except StoreUnavailable as error:
            if error.refused:
                raise VisualprofError(
                    error.error, msg("queue.bucket_credentials_right", "are the bucket and the credentials right?")
                ) from error
            _log.warning("%s", error.error)
        except NotFound as error:
            raise VisualprofError(
                msg("queue.there_no", f"there is no {place}"), msg("queue.make_bucket_first", "make the bucket first")
            ) from error

    def path(self, key: str) -> Path:
        """Where a copy of a blob is, which is fetched when it is not there.

        Raises: NotFound, StoreDown, DiskFull.
        """
        path = super().path(key)
        with self._filling[hash(key) % 64], disk_errors(f"{self._folder}"):
            if not path.is_file():
                with self._arriving() as part:
                    if self._download(key, part)[1] != path.name:
                        raise VisualprofError(
                            msg("queue.damaged", f"{key} is damaged in {self.location}"),
                            msg("queue.upload_file_again", "upload the file again"),
                        )
                    self._keep(part, path)
        touch_access_time(path)
        return path

    def put(self, read: ReadChunk, limit: int) -> tuple[str, int]:
        """Keep a blob that this server made, of an archive; its sha256 and size.

        Raises: Oversize, DiskFull, StoreDown.
        """
        digest, size = super().put(read, limit)
        with super().path(f"blobs/{digest}").open("rb") as file, self._translate_errors():
            self._s3.upload_fileobj(file, self.location.bucket, self._full(f"blobs/{digest}"))
        self.trim()
        return digest, size

    def finalize(self, key: str, size: int, sha256: str = "") -> str:
        """Keep a file that has arrived as a blob; its sha256. sha256: that it should have, where that is known.

        Raises: Unfit: it is not all there, or differs; what differs is removed. DiskFull, StoreDown.
        """
        have = self.received_bytes(key, size)
        if have < size:
            raise InvalidResult(
                msg("queue.file_bytes", f"the file has {have} of {size} bytes"),
                msg("queue.upload_rest", "upload the rest"),
            )
        with disk_errors(f"{self._folder}"), self._arriving() as part:
            tag, digest = self._download(key, part, size)
            if sha256 not in ("", digest) or part.stat().st_size != size:
                self.delete(key)
                raise InvalidResult(
                    msg("queue.file_differs_what_announced", "the file differs from what was announced"),
                    msg("queue.upload_again", "upload it again"),
                )
            self._copy(key, f"blobs/{digest}", tag)
            self._keep(part, super().path(f"blobs/{digest}"))
        return digest

    def begin_upload(self, key: str, size: int, new: bool = True) -> UploadPlan:
        """Signs addresses for what is missing of a file. A large one goes on with the parts that are there.

        Raises: StoreDown.
        """
        if size == 0 or (not new and self._size(key) == size):
            return UploadPlan(size)
        if size <= PART_BYTES:
            return UploadPlan(0, parts=[PartUpload(0, size, self._signed("put_object", key, ContentLength=size))])
        upload = self._multipart(key) or self._begun(key)
        there = {number: each["Size"] for number, each in self._parts(key, upload).items()}
        whole = {number: min(PART_BYTES, size - start) for number, start in enumerate(range(0, size, PART_BYTES), 1)}
        missing = [number for number, length in whole.items() if there.get(number) != length]
        have = size - sum(whole[number] for number in missing)
        signed = [
            PartUpload(
                (number - 1) * PART_BYTES,
                whole[number],
                self._signed("upload_part", key, UploadId=upload, PartNumber=number, ContentLength=whole[number]),
            )
            for number in missing[:MAX_PART_URLS]
        ]
        return UploadPlan(have, parts=signed)

    def received_bytes(self, key: str, size: int) -> int:
        """How much is there of a file of that size; the parts of one that has all become one file."""
        if size == 0 or (there := self._size(key)) == size:
            return size
        if size <= PART_BYTES or there is not None:
            return there or 0
        upload = self._multipart(key)
        parts = self._parts(key, upload) if upload else {}
        have = sum(part["Size"] for part in parts.values())
        if have == size:
            named = [{"PartNumber": number, "ETag": parts[number]["ETag"]} for number in sorted(parts)]
            with self._translate_errors():
                self._s3.complete_multipart_upload(**self._at(key), UploadId=upload, MultipartUpload={"Parts": named})
        return have

    def download(self, key: str, size: int, target: Path) -> str:
        """Fetch a file that has arrived to where it is wanted; the sha256 of what is there then.

        Raises: NotFound, StoreDown.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        if size == 0:
            target.touch()
            return hashlib.sha256().hexdigest()
        return self._download(key, target, size)[1]

    def put_file(self, path: Path, key: str) -> None:
        """Put a file of a run into the bucket.

        Raises: StoreDown.
        """
        with path.open("rb") as file, self._translate_errors():
            self._s3.upload_fileobj(file, self.location.bucket, self._full(key))

    def delete(self, prefix: str) -> None:
        """Remove the copy of a blob, or what is arriving.

        The blob itself goes when upkeep finds that no row names it: transactions do not wait for another service.
        """
        super().delete(prefix)
        if prefix.startswith("blobs/"):
            return
        below = self._full(prefix) + ("" if prefix.count("/") == 2 else "/")
        for key in self._keys("list_objects_v2", "Contents", below):
            with self._translate_errors():
                self._s3.delete_object(Bucket=self.location.bucket, Key=key["Key"])
        for upload in self._keys("list_multipart_uploads", "Uploads", below):
            with self._translate_errors(), contextlib.suppress(NotFound):
                self._s3.abort_multipart_upload(
                    Bucket=self.location.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )

    def delete_blob(self, blob: str) -> None:
        """Remove a blob that no row names, and its copy."""
        super().delete(f"blobs/{blob}")
        with self._translate_errors():
            self._s3.delete_object(**self._at(f"blobs/{blob}"))

    def list_names(self, room: Namespace) -> list[str]:
        """What lies in a room of the bucket: blobs, or folders of what is arriving."""
        below = self._full(f"{room}/")
        found = [row["Key"] for row in self._keys("list_objects_v2", "Contents", below)]
        if room == "incoming":
            found += [row["Key"] for row in self._keys("list_multipart_uploads", "Uploads", below)]
        return sorted({key.removeprefix(below).partition("/")[0] for key in found})

    def run_files(self, age_s: float = float("-inf")) -> set[str]:
        """Keys of files of runs that have been there for longer than so many seconds.

        Raises: StoreDown.
        """
        rows, prefix = self._keys("list_objects_v2", "Contents", self._full("runs/")), self.location.prefix
        return {r["Key"].removeprefix(prefix) for r in rows if time.time() - r["LastModified"].timestamp() > age_s}

    def delete_run_file(self, key: str) -> None:
        """Remove a file of a run that no row names."""
        with self._translate_errors():
            self._s3.delete_object(**self._at(key))

    def age_s(self, blob: str) -> float:
        """Since when a blob is there; 0 without it."""
        head = self._head(f"blobs/{blob}")
        return 0.0 if head is None else time.time() - head["LastModified"].timestamp()

    def require(self, key: str) -> None:
        """Raises: NotFound: it is not there. StoreDown."""
        if self._head(key) is None:
            raise NotFound(msg("queue.gone", f"{key} is gone"))

    def get_url(self, key: str, name: str) -> str:
        """A signed address to read it, good for 15 minutes."""
        del name
        return self._signed("get_object", super().path(key).relative_to(self._folder).as_posix())

    def _signed(self, operation: str, key: str, **facts: Any) -> str:
        with self._translate_errors():
            return self._signing.generate_presigned_url(operation, {**self._at(key), **facts}, ExpiresIn=PUT_VALID_S)

    def _full(self, key: str) -> str:
        return f"{self.location.prefix}{key}"

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self.location.bucket, "Key": self._full(key)}

    def _head(self, key: str) -> dict[str, Any] | None:
        with contextlib.suppress(NotFound), self._translate_errors():
            return self._s3.head_object(**self._at(key))
        return None

    def _size(self, key: str) -> int | None:
        head = self._head(key)
        return None if head is None else int(head["ContentLength"])

    def _begun(self, key: str) -> str:
        with self._translate_errors():
            return self._s3.create_multipart_upload(**self._at(key))["UploadId"]

    def _multipart(self, key: str) -> str | None:
        """Of several that two servers began, both find the same."""
        rows = self._keys("list_multipart_uploads", "Uploads", self._full(key))
        return min((row["UploadId"] for row in rows), default=None)

    def _parts(self, key: str, upload: str) -> dict[int, dict[str, Any]]:
        with self._translate_errors():
            pages = self._s3.get_paginator("list_parts").paginate(**self._at(key), UploadId=upload)
            return {part["PartNumber"]: part for page in pages for part in page.get("Parts", [])}

    def _keys(self, operation: str, rows: str, below: str) -> list[dict[str, Any]]:
        with self._translate_errors():
            pages = self._s3.get_paginator(operation).paginate(Bucket=self.location.bucket, Prefix=below)
            return [row for page in pages for row in page.get(rows, [])]

    def _copy(self, key: str, to: str, tag: str) -> None:
        """Within the service, if it still is what was read."""
        transfer: Any = import_module("boto3.s3.transfer")
        pieces = transfer.TransferConfig(multipart_threshold=_LARGE, multipart_chunksize=_LARGE // 4)
        same = {"CopySourceIfMatch": tag}
        with self._translate_errors():
            self._s3.copy(self._at(key), self.location.bucket, self._full(to), ExtraArgs=same, Config=pieces)

    def _download(self, key: str, target: Path, most: int = 1 << 62) -> tuple[str, str]:
        """Write a file, not much more than `most` bytes of it; its tag and sha256."""
        digest, left = hashlib.sha256(), most
        with self._translate_errors(), target.open("wb") as file:
            answer = self._s3.get_object(**self._at(key))
            end = time.monotonic() + _PATIENCE_S + answer["ContentLength"] / _SLOWEST
            while left >= 0 and (piece := answer["Body"].read(CHUNK_BYTES)):
                if time.monotonic() > end:
                    raise StoreUnavailable(msg("queue.store_too_slow", f"the store {self.location} is too slow"))
                digest.update(piece)
                file.write(piece)
                left -= len(piece)
        return answer["ETag"], digest.hexdigest()

    @contextlib.contextmanager
    def _arriving(self) -> Generator[Path]:
        """A name for a file in the folder, which is removed unless it was renamed."""
        folder = self._folder / "blobs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = folder / f".{uuid.uuid4().hex}"
        try:
            yield part
        finally:
            part.unlink(missing_ok=True)

    def _keep(self, part: Path, path: Path) -> None:
        part.chmod(0o444)  # results are links to it
        part.replace(path)
        self.trim()

    def trim(self, others: Iterable[Path] = (), busy: Container[str] = ()) -> bool:
        """Remove the copies that were used the longest ago; is there still too much, as all else is in use?

        Args:
            others: copies outside this folder.
            busy: paths of those that are being read.
        """
        folder, found = self._folder / "blobs", dict[tuple[int, int], tuple[int, int, list[Path]]]()
        for path in (*(folder.iterdir() if folder.is_dir() else ()), *others):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                latest = max(status.st_atime_ns, status.st_mtime_ns)
                # The copy of a model and that in a run are one file.
                found.setdefault((status.st_dev, status.st_ino), (latest, status.st_size, []))[2].append(path)
        over = sum(size for _, size, _ in found.values()) - self._most
        for latest, size, paths in sorted(found.values()):
            if over <= 0 or latest > time.time_ns() - _IN_USE_NS:
                break
            if not any(str(path) in busy for path in paths):
                for path in paths:
                    with contextlib.suppress(PermissionError):  # another system's way to say that it is being read
                        path.unlink(missing_ok=True)
                over -= size
        return over > 0

    @contextlib.contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Name the service's troubles.

        Raises: NotFound: it has no such thing. StoreDown: it does not answer, or not as it should.
        """
        exceptions: Any = import_module("botocore.exceptions")
        began = time.monotonic()
        if began < self._again:
            raise StoreUnavailable(msg("queue.store_not_answer", f"the store {self.location} does not answer"))
        try:
            yield
        except (exceptions.ClientError, exceptions.BotoCoreError) as error:
            answer: dict[str, Any] = getattr(error, "response", None) or {}  # None where a connection broke
            code, status = (
                answer.get("Error", {}).get("Code", ""),
                answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0),
            )
            if code in _GONE:
                raise NotFound(msg("queue.no_such_file", f"{self.location} has no such file")) from error
            _log.warning("%s: %s", self.location, error)
            if not code:  # it is left alone for as long as it kept us waiting
                self._again = time.monotonic() + min(time.monotonic() - began, _PAUSE_S)
            why = (
                msg("queue.store_answers", f"the store {self.location} answers {code}")
                if code
                else msg("queue.store_not_answer", f"the store {self.location} does not answer")
            )
            raise StoreUnavailable(why, refused=400 <= status < 429) from error


def touch_access_time(path: Path) -> None:
    """Now, by the time of access: results are the same file, and the time of change is theirs, too."""
    with contextlib.suppress(FileNotFoundError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def _client(place: BucketLocation, endpoint: str) -> Any:
    """Credentials come from the environment, the usual files or the machine's role."""
    boto3: Any
    core: Any
    try:
        boto3, core = import_module("boto3"), import_module("botocore.config")
        failure: Any = import_module("botocore.exceptions").BotoCoreError
    except ImportError as error:
        raise VisualprofError(
            msg("queue.store_needs_boto3", "a store needs boto3"),
            msg("queue.pip_install_visualprof_team", "pip install 'visualprof[team]'"),
        ) from error
    config = core.Config(
        signature_version="s3v4",
        s3={"addressing_style": "virtual" if place.virtual else "path"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        connect_timeout=5,
        read_timeout=60,
        retries={"total_max_attempts": 2},
        max_pool_connections=32,
    )
    try:
        session = boto3.Session()
        if session.get_credentials() is None:
            hint = msg("queue.set_aws_access_key", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
            raise VisualprofError(msg("queue.there_no_credentials", f"there are no credentials for {place}"), hint)
        return session.client("s3", endpoint_url=endpoint, region_name=place.region, config=config)
    except failure as error:
        raise VisualprofError(msg("queue.store_cannot_used", f"the store {place} cannot be used: {error}")) from error
