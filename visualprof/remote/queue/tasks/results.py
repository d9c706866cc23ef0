"""Results: files are announced, uploaded, verified, and become a folder of the log directory in one step."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, insert, select

from visualprof.messages import msg
from visualprof.remote.protocol import Request
from visualprof.remote.queue.check.names import REQUIRED, check_all, check_distinct, check_name, model_name
from visualprof.remote.queue.errors import InvalidResult, disk_errors
from visualprof.remote.queue.store.database import Database, without_result
from visualprof.remote.queue.store.files import PartUpload, Store, link_or_copy
from visualprof.remote.queue.store.records import Task
from visualprof.remote.queue.store.s3 import Bucket
from visualprof.remote.queue.store.tables import artifacts
from visualprof.remote.queue.tasks.bucket_runs import upload_run
from visualprof.remote.queue.tasks.messages import AnnouncedFile

MAX_HEAD_BYTES = 4 << 20  # maximum size of the required JSON files
_SHA256_LENGTH = 64
_IS_ATTEMPT = (artifacts.c.task == bindparam("task_id")) & (artifacts.c.attempt == bindparam("task_attempt"))
_ANNOUNCED = select(artifacts).where(_IS_ATTEMPT)
_DELETE_ANNOUNCED = without_result(delete(artifacts).where(_IS_ATTEMPT))
_DELETE_NAMED = _DELETE_ANNOUNCED.where(artifacts.c.name.in_(bindparam("names", expanding=True)))


@dataclass(frozen=True)
class ResultUpload:
    """The upload of a file of a result.

    Attributes:
        name: Name of the file.
        url: URL to append to; "" if the file is uploaded in parts.
        have: Bytes that the store already has.
        parts: Missing parts, each with its own URL.
    """

    name: str
    url: str
    have: int
    parts: list[PartUpload]


class Results:
    """Results of tasks.

    Args:
        database: Database of the queue.
        store: File store of the queue.
        root: The log directory.
        bucket: Bucket for the files of runs; None stores them in the log directory.

    Attributes:
        partial_folder: Folder where results are assembled.
    """

    def __init__(self, database: Database, store: Store, root: Path, bucket: Bucket | None = None) -> None:
        self._database = database
        self._store = store
        self._root = root
        self._bucket = bucket
        self.partial_folder = root / ".visualprof" / "results.partial"

    def begin_uploads(self, task: Task, files: Sequence[AnnouncedFile]) -> list[ResultUpload]:
        """Record the files of a result and return where to upload them. An identical announcement resumes its upload.

        Raises:
            InvalidResult: A name, size or digest is invalid.
            PayloadTooLarge: The files are too many or too large.
            DiskFull: The disk is full.
        """
        check_all([file.name for file in files], [file.size_bytes for file in files])
        if any(len(file.sha256) != _SHA256_LENGTH for file in files):
            raise InvalidResult(msg("queue.sha256_64_hexadecimal_digits", "sha256 has 64 hexadecimal digits"))
        announced = self._announced_files(task)
        rows = {file.name: self._announcement_row(task, file, announced.get(file.name)) for file in files}
        existing_keys = {row.key for row in announced.values()}
        plans = {
            n: self._store.begin_upload(r["key"], r["size_bytes"], r["key"] not in existing_keys)
            for n, r in rows.items()
        }
        with self._database.write() as connection:
            connection.execute(_DELETE_NAMED, {**_attempt_parameters(task), "names": list(rows)})
            if rows:
                connection.execute(insert(artifacts), list(rows.values()))
        return [ResultUpload(name, plan.url, plan.have, plan.parts) for name, plan in plans.items()]

    def prepare(self, task: Task, request: Request, names: Sequence[str]) -> Path:
        """Return a folder with the verified files of a result. It is on the log directory's disk but not published.

        Raises:
            InvalidResult: A file is missing, differs, or has invalid content.
            DiskFull: The disk is full.
        """
        announced = self._announced_files(task)
        missing = [name for name in names if name not in announced]
        if missing:
            raise InvalidResult(
                msg("queue.not_announced", f"{missing[0][:100]} was not announced"),
                msg("queue.announce_upload", "announce it and upload it"),
            )
        check_all(names, [announced[name].size_bytes for name in names])
        folder = self.new_folder(task)
        with disk_errors(str(self._root)):
            try:
                for name in names:
                    self._download(name, announced[name], folder / name)
                _check_required_files(task, folder, names)
                self._add_model(folder, request, names)
            except BaseException:
                self.discard(folder)
                raise
        return folder

    def new_folder(self, task: Task) -> Path:
        """Create an empty folder on the log directory's disk, to be published or discarded.

        Raises:
            DiskFull: The disk is full.
        """
        folder = self.partial_folder / f"{task.attempt_name}-{uuid.uuid4().hex[:8]}"
        with disk_errors(str(self._root)):
            folder.mkdir(parents=True)
        return folder

    def free_run_name(self, job: str, run: str) -> str:
        """Return a folder for a job's result: `run`, or `run` with a number if another owner uses that folder."""
        names = (f"{run}{'' if i == 1 else f'-{i}'}" for i in itertools.count(1))
        return next(
            name for name in names if not os.path.lexists(self._root / name) or self.belongs_to(job, self._root / name)
        )

    @staticmethod
    def belongs_to(job: str, folder: Path) -> bool:
        """Return whether a folder is a result of the job."""
        try:
            with (folder / "job.json").open("rb") as file:
                head = msgspec.json.decode(file.read(MAX_HEAD_BYTES), type=dict[str, Any])
        except (OSError, ValueError, RecursionError):
            return False
        return head.get("job") == job and not folder.is_symlink()

    def store_in_bucket(self, folder: Path, run: str, task: Task, request: Request) -> list[dict[str, Any]]:
        """Upload a prepared folder to the bucket, if runs are stored there; return rows for `record_files`.

        Raises:
            StoreUnavailable: The bucket does not answer.
        """
        return upload_run(self._bucket, folder, run, task, request.blobs) if self._bucket else []

    @staticmethod
    def record_files(connection: Connection, task: Task, rows: list[dict[str, Any]]) -> None:
        """Replace the rows of a task's files with those of its stored result."""
        connection.execute(delete(artifacts).where(artifacts.c.task == task.id))
        if rows:
            connection.execute(insert(artifacts), rows)

    def publish(self, folder: Path, run: str) -> None:
        """Move a prepared folder to its place, and delete an earlier result there.

        Raises:
            DiskFull: The disk is full.
        """
        target = self._root / run
        trash = self.partial_folder / uuid.uuid4().hex
        with disk_errors(str(self._root)):
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                target.replace(trash)
            try:
                folder.rename(target)
            except OSError:
                with contextlib.suppress(OSError):
                    trash.rename(target)
                raise
        shutil.rmtree(trash, ignore_errors=True)

    @staticmethod
    def discard(folder: Path | None) -> None:
        """Delete a folder that was not published."""
        if folder is not None and folder.exists():
            shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def forget_announced(connection: Connection, task: Task) -> None:
        """Delete the announced files of an attempt that ends."""
        connection.execute(_DELETE_ANNOUNCED, _attempt_parameters(task))

    def delete_uploads(self, task: Task) -> None:
        """Delete the uploaded files of an attempt that has ended."""
        self._store.delete(f"incoming/{task.attempt_name}")

    def _announced_files(self, task: Task) -> dict[str, Any]:
        with self._database.read() as connection:
            return {row.name: row for row in connection.execute(_ANNOUNCED, _attempt_parameters(task))}

    def _announcement_row(self, task: Task, file: AnnouncedFile, previous: Any) -> dict[str, Any]:
        key = f"incoming/{task.attempt_name}/{uuid.uuid4().hex}"
        if previous is not None and (previous.size_bytes, previous.sha256) == (file.size_bytes, file.sha256):
            key = previous.key
        values = {"name": file.name, "key": key, "size_bytes": file.size_bytes, "sha256": file.sha256}
        return {"task": task.id, "attempt": task.attempt, **values}

    def _download(self, name: str, announced: Any, target: Path) -> None:
        """Move an uploaded file to `target`. A file with wrong content is deleted, so that it can be uploaded again.

        Raises:
            InvalidResult: The file is incomplete or differs.
        """
        size = self._store.received_bytes(announced.key, announced.size_bytes)
        if size < announced.size_bytes:
            raise InvalidResult(
                msg("queue.bytes", f"{name[:100]} has {size} of {announced.size_bytes} bytes"),
                msg("queue.upload_rest", "upload the rest"),
            )
        if self._store.download(announced.key, announced.size_bytes, target) != announced.sha256:
            self._store.delete(announced.key)
            raise InvalidResult(
                msg("queue.differs_sha256", f"{name[:100]} differs from its sha256"),
                msg("queue.upload_again", "upload it again"),
            )

    def _add_model(self, folder: Path, request: Request, names: Sequence[str]) -> None:
        """Add the model to its result under the name in job.json; the agent does not upload the model."""
        job = msgspec.json.decode((folder / "job.json").read_bytes(), type=dict[str, Any])
        model: Any = job.get("model")
        file: Any = model.get("file") if isinstance(model, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        name = file if isinstance(file, str) and file else model_name(request.model.name, names)
        check_name(name)
        if name not in names:
            check_distinct([*names, name])
            link_or_copy(self._store.path(f"blobs/{request.model.blob}"), folder / name)
        for part in request.model.parts:
            if not (folder / part.path).exists():
                link_or_copy(self._store.path(f"blobs/{part.blob}"), folder / part.path)


def _check_required_files(task: Task, folder: Path, names: Sequence[str]) -> None:
    documents = {name: _read_document(name, folder, names) for name in REQUIRED}
    job = documents["job.json"]
    if (job.get("job"), job.get("task")) != (task.job, task.id):
        raise InvalidResult(
            msg("queue.job_json_another_task", "job.json is of another task"),
            msg("queue.names_job_task_lease", "it names the job and the task of the lease"),
        )


def _read_document(name: str, folder: Path, names: Sequence[str]) -> dict[str, Any]:
    if name not in names:
        raise InvalidResult(
            msg("queue.result_lacks", f"the result lacks {name}"),
            msg("queue.result", f"a result has {', '.join(REQUIRED)}"),
        )
    with (folder / name).open("rb") as file:
        text = file.read(MAX_HEAD_BYTES + 1)
    try:
        if len(text) > MAX_HEAD_BYTES:
            raise ValueError(msg("queue.too_large", "it is too large"))
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise InvalidResult(msg("queue.no_json_object", f"{name} is no JSON object: {error}")) from error


def _attempt_parameters(task: Task) -> dict[str, Any]:
    return {"task_id": task.id, "task_attempt": task.attempt}
