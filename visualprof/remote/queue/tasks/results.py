"""Results: files are announced, arrive, are verified and become a folder of the log directory, at once."""

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
from visualprof.remote.queue.store.tables import artefacts
from visualprof.remote.queue.tasks.bucket_runs import upload_run
from visualprof.remote.queue.tasks.messages import AnnouncedFile

MAX_HEAD = 4 << 20  # of the required files
_OF_SHA256 = 64
_ATTEMPT = (artefacts.c.task == bindparam("of")) & (artefacts.c.attempt == bindparam("of_attempt"))
_KNOWN = select(artefacts).where(_ATTEMPT)
_FORGOTTEN = without_result(delete(artefacts).where(_ATTEMPT))
_AGAIN = _FORGOTTEN.where(artefacts.c.name.in_(bindparam("named", expanding=True)))


@dataclass(frozen=True)
class ResultUpload:
    """Where to upload it, and how much is there already. parts: to addresses of their own, where there is no `url`."""

    name: str
    url: str
    have: int
    parts: list[PartUpload]


class Results:
    """Results of tasks.

    Args:
        database, store: of the queue.
        root: the log directory.
        bucket: where the files of runs are kept; None keeps them in the log directory.
    """

    def __init__(self, database: Database, store: Store, root: Path, bucket: Bucket | None = None) -> None:
        self._database = database
        self._store = store
        self._root = root
        self._bucket = bucket
        self.partial = root / ".visualprof" / "results.partial"

    def begin_uploads(self, task: Task, files: Sequence[AnnouncedFile]) -> list[ResultUpload]:
        """Takes note of a result's files. One that was announced alike goes on where it stopped.

        Raises: Unfit, Oversize, DiskFull.
        """
        check_all([file.name for file in files], [file.size_bytes for file in files])
        if any(len(file.sha256) != _OF_SHA256 for file in files):
            raise InvalidResult(msg("queue.sha256_64_hexadecimal_digits", "sha256 has 64 hexadecimal digits"))
        known = self._artefacts(task)
        rows = {file.name: self._row(task, file, known.get(file.name)) for file in files}
        kept = {row.key for row in known.values()}
        ways = {n: self._store.begin_upload(r["key"], r["size_bytes"], r["key"] not in kept) for n, r in rows.items()}
        with self._database.write() as connection:
            connection.execute(_AGAIN, {**_of(task), "named": list(rows)})
            if rows:
                connection.execute(insert(artefacts), list(rows.values()))
        return [ResultUpload(name, way.url, way.have, way.parts) for name, way in ways.items()]

    def prepare(self, task: Task, request: Request, names: Sequence[str]) -> Path:
        """A folder with the verified files of a result, on the log directory's disk but not yet shown.

        Raises: Unfit: a file is missing, differs, or is not what it should be. DiskFull.
        """
        known = self._artefacts(task)
        missing = [name for name in names if name not in known]
        if missing:
            raise InvalidResult(
                msg("queue.not_announced", f"{missing[0][:100]} was not announced"),
                msg("queue.announce_upload", "announce it and upload it"),
            )
        check_all(names, [known[name].size_bytes for name in names])
        folder = self.new_folder(task)
        with disk_errors(str(self._root)):
            try:
                for name in names:
                    self._bring(name, known[name], folder / name)
                _check_heads(task, folder, names)
                self._add_model(folder, request, names)
            except BaseException:
                self.discard(folder)
                raise
        return folder

    def new_folder(self, task: Task) -> Path:
        """An empty folder on the log directory's disk, to be published or discarded.

        Raises: DiskFull.
        """
        folder = self.partial / f"{task.attempt_name}-{uuid.uuid4().hex[:8]}"
        with disk_errors(str(self._root)):
            folder.mkdir(parents=True)
        return folder

    def free_run_name(self, job: str, run: str) -> str:
        """Where a job's result may be put: `run`, or beside it when that folder is somebody else's."""
        names = (f"{run}{'' if i == 1 else f'-{i}'}" for i in itertools.count(1))
        return next(
            name for name in names if not os.path.lexists(self._root / name) or self.belongs_to(job, self._root / name)
        )

    @staticmethod
    def belongs_to(job: str, target: Path) -> bool:
        """Is that folder a result of the job?"""
        try:
            with (target / "job.json").open("rb") as file:
                head = msgspec.json.decode(file.read(MAX_HEAD), type=dict[str, Any])
        except (OSError, ValueError, RecursionError):
            return False
        return head.get("job") == job and not target.is_symlink()

    def store_in_bucket(self, folder: Path, run: str, task: Task, request: Request) -> list[dict[str, Any]]:
        """Put a prepared folder into the bucket, where runs are kept there; rows for `note`.

        Raises: StoreDown.
        """
        return upload_run(self._bucket, folder, run, task, request.blobs) if self._bucket else []

    @staticmethod
    def record_files(connection: Connection, task: Task, kept: list[dict[str, Any]]) -> None:
        """Takes note of what is kept of a task, in place of what was kept or announced before."""
        connection.execute(delete(artefacts).where(artefacts.c.task == task.id))
        if kept:
            connection.execute(insert(artefacts), kept)

    def publish(self, folder: Path, run: str) -> None:
        """Put a prepared folder in its place; an earlier result there gives way.

        Raises: DiskFull.
        """
        target = self._root / run
        aside = self.partial / uuid.uuid4().hex
        with disk_errors(str(self._root)):
            target.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                target.replace(aside)
            try:
                folder.rename(target)
            except OSError:
                with contextlib.suppress(OSError):
                    aside.rename(target)
                raise
        shutil.rmtree(aside, ignore_errors=True)

    @staticmethod
    def discard(folder: Path | None) -> None:
        """Remove a folder if it was not published."""
        if folder is not None and folder.exists():
            shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def forget_announced(connection: Connection, task: Task) -> None:
        """What was announced of an attempt that ends."""
        connection.execute(_FORGOTTEN, _of(task))

    def delete_uploads(self, task: Task) -> None:
        """The files that arrived of an attempt that has ended."""
        self._store.delete(f"incoming/{task.attempt_name}")

    def _artefacts(self, task: Task) -> dict[str, Any]:
        with self._database.read() as connection:
            return {row.name: row for row in connection.execute(_KNOWN, _of(task))}

    def _row(self, task: Task, file: AnnouncedFile, before: Any) -> dict[str, Any]:
        key = f"incoming/{task.attempt_name}/{uuid.uuid4().hex}"
        if before is not None and (before.size_bytes, before.sha256) == (file.size_bytes, file.sha256):
            key = before.key
        values = {"name": file.name, "key": key, "size_bytes": file.size_bytes, "sha256": file.sha256}
        return {"task": task.id, "attempt": task.attempt, **values}

    def _bring(self, name: str, announced: Any, target: Path) -> None:
        """Bytes that are wrong are dropped, so that the file can be sent again."""
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
        """The model stands beside its result without having been sent back, under the name that job.json gives it."""
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


def _check_heads(task: Task, folder: Path, names: Sequence[str]) -> None:
    heads = {name: _head(name, folder, names) for name in REQUIRED}
    job = heads["job.json"]
    if (job.get("job"), job.get("task")) != (task.job, task.id):
        raise InvalidResult(
            msg("queue.job_json_another_task", "job.json is of another task"),
            msg("queue.names_job_task_lease", "it names the job and the task of the lease"),
        )


def _head(name: str, folder: Path, names: Sequence[str]) -> dict[str, Any]:
    if name not in names:
        raise InvalidResult(
            msg("queue.result_lacks", f"the result lacks {name}"),
            msg("queue.result", f"a result has {', '.join(REQUIRED)}"),
        )
    with (folder / name).open("rb") as file:
        text = file.read(MAX_HEAD + 1)
    try:
        if len(text) > MAX_HEAD:
            raise ValueError(msg("queue.too_large", "it is too large"))
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise InvalidResult(msg("queue.no_json_object", f"{name} is no JSON object: {error}")) from error


def _of(task: Task) -> dict[str, Any]:
    return {"of": task.id, "of_attempt": task.attempt}
