"""Runs in the bucket: their files there, and the rows that name them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from visualprof.reader.logdir.scan import LogFile, Root, examine, walk
from visualprof.remote.queue.store.files import hash_stream
from visualprof.remote.queue.store.records import AnyRow, Task
from visualprof.remote.queue.store.s3 import Bucket

MARKER_FILE = ".store"  # in the folder of a run; contains the run's prefix in the bucket


class _ModelInspection(msgspec.Struct):
    """The part of a file's inspection that is read here."""

    format: str = ""


_INSPECTION = msgspec.json.Decoder(_ModelInspection)


@dataclass(frozen=True)
class RunFile:
    """A file of a run in the bucket.

    Attributes:
        key: Key in the bucket.
        size_bytes: Size of the file.
        sha256: Digest of the file.
        format: Format of a profile or model, "" for other files.
    """

    key: str
    size_bytes: int
    sha256: str
    format: str

    @property
    def is_upload(self) -> bool:
        """Whether the file was uploaded for the job, as its model is."""
        return self.key.startswith("blobs/")


@dataclass(frozen=True)
class BucketRun:
    """A run in the bucket.

    Attributes:
        id: Folder of the run, relative to the log directory.
        prefix: Prefix of the keys of its files.
        files: Files by name.
    """

    id: str
    prefix: str
    files: dict[str, RunFile]

    @property
    def published_ns(self) -> int:
        """Modification time of all copies of the run's files."""
        return int(self.prefix.rpartition("-")[2])


def upload_run(
    bucket: Bucket, folder: Path, run: str, task: Task, uploaded_digests: Iterable[str]
) -> list[dict[str, Any]]:
    """Upload a prepared folder to the bucket and mark the folder as a copy.

    Args:
        bucket: The bucket.
        folder: The prepared folder.
        run: Id of the run.
        task: Task whose result it is.
        uploaded_digests: Digests of files that are in the bucket already.

    Returns:
        Rows that name the files of the run.

    Raises:
        StoreUnavailable: The bucket does not answer.
    """
    now_ns = time.time_ns()
    prefix, rows = f"runs/{run}/{task.attempt}-{now_ns}", list[dict[str, Any]]()
    files = {file.file: examine(file) for file in walk(Root(folder, "")) if isinstance(file, LogFile)}
    for number, path in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        name = path.relative_to(folder).as_posix()
        with path.open("rb") as file:
            sha256, size = hash_stream(file.read)
        key = f"blobs/{sha256}"
        if sha256 not in uploaded_digests:
            verdict = files.get(name)
            key = f"{prefix}/{number}" + (f".{verdict.format}" if verdict and verdict.kind == "profile" else "")
            bucket.put_file(path, key)
            os.utime(path, ns=(now_ns, now_ns))
        rows.append(
            {
                "task": task.id,
                "attempt": task.attempt,
                "name": name,
                "key": key,
                "size_bytes": size,
                "sha256": sha256,
            }
        )
    (folder / MARKER_FILE).write_text(prefix, "utf-8")
    return rows


def run_id(key: str) -> str:
    """Return the run of a file's key, which is `runs/<run>/<attempt>-<time>/<number>`."""
    return key.removeprefix("runs/").rpartition("/")[0].rpartition("/")[0]


def runs_of_job(rows: Sequence[AnyRow]) -> dict[str, BucketRun]:
    """Return the runs that the rows of a job describe, by id."""
    rows_by_attempt: dict[tuple[str, int], list[AnyRow]] = {}
    for row in rows:
        if row.key is not None and not row.key.startswith("incoming/"):
            rows_by_attempt.setdefault((row.task, row.attempt), []).append(row)
    runs: dict[str, BucketRun] = {}
    for attempt_rows in rows_by_attempt.values():
        key: str = next(row.key for row in attempt_rows if row.key.startswith("runs/"))
        runs[run_id(key)] = BucketRun(
            run_id(key), key.rpartition("/")[0], {row.name: _run_file(row) for row in attempt_rows}
        )
    return runs


def _run_file(row: AnyRow) -> RunFile:
    format = row.key.rpartition("/")[2].partition(".")[2]
    if row.key.startswith("blobs/") and row.inspected:
        format = _INSPECTION.decode(row.inspected).format
    return RunFile(row.key, row.size_bytes, row.sha256, format)
