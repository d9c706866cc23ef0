"""What a run in the bucket consists of: its files there, and the rows that name them."""

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

MARKER_FILE = ".store"  # in the folder of a run: its place in the bucket


class Inspected(msgspec.Struct):
    """Of what inspection found in an uploaded file."""

    format: str = ""


_INSPECTED = msgspec.json.Decoder(Inspected)


@dataclass(frozen=True)
class RunFile:
    """A file of a run. format: of the profile or model that it is, "" for others."""

    key: str
    size_bytes: int
    sha256: str
    format: str

    @property
    def uploaded(self) -> bool:
        """Is it one of the files that the job was made of?"""
        return self.key.startswith("blobs/")


@dataclass(frozen=True)
class BucketRun:
    """A run in the bucket. place: of its files there; files: by name."""

    id: str
    place: str
    files: dict[str, RunFile]

    @property
    def published_ns(self) -> int:
        """The time of change that its files have wherever they are."""
        return int(self.place.rpartition("-")[2])


def upload_run(bucket: Bucket, folder: Path, run: str, task: Task, uploaded: Iterable[str]) -> list[dict[str, Any]]:
    """Put a prepared folder into the bucket, and marks it as a copy; the rows that name its files.

    Args:
        run: its id. task: whose result it is. uploaded: sha256 of files that are there already.

    Raises: StoreDown.
    """
    at = time.time_ns()
    kept, rows = f"runs/{run}/{task.attempt}-{at}", list[dict[str, Any]]()
    found = {file.file: examine(file) for file in walk(Root(folder, "")) if isinstance(file, LogFile)}
    for number, path in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        name = path.relative_to(folder).as_posix()
        with path.open("rb") as file:
            sha256, size = hash_stream(file.read)
        key = f"blobs/{sha256}"
        if sha256 not in uploaded:
            verdict = found.get(name)
            key = f"{kept}/{number}" + (f".{verdict.format}" if verdict and verdict.kind == "profile" else "")
            bucket.put_file(path, key)
            os.utime(path, ns=(at, at))
        rows.append({
            "task": task.id, "attempt": task.attempt, "name": name, "key": key, "size_bytes": size, "sha256": sha256,
        })  # fmt: skip
    (folder / MARKER_FILE).write_text(kept, "utf-8")
    return rows


def run_id(key: str) -> str:
    """The run of one of its files: `runs/<run>/<attempt>-<time>/<number>`."""
    return key.removeprefix("runs/").rpartition("/")[0].rpartition("/")[0]


def runs_of_job(rows: Sequence[AnyRow]) -> dict[str, BucketRun]:
    """The runs of a job, of its rows."""
    of_attempt: dict[tuple[str, int], list[AnyRow]] = {}
    for row in rows:
        if row.key is not None and not row.key.startswith("incoming/"):
            of_attempt.setdefault((row.task, row.attempt), []).append(row)
    runs: dict[str, BucketRun] = {}
    for rows_of in of_attempt.values():
        key: str = next(row.key for row in rows_of if row.key.startswith("runs/"))
        runs[run_id(key)] = BucketRun(
            run_id(key), key.rpartition("/")[0], {row.name: _bucket_file(row) for row in rows_of}
        )
    return runs


def _bucket_file(row: AnyRow) -> RunFile:
    format = row.key.rpartition("/")[2].partition(".")[2]
    if row.key.startswith("blobs/") and row.inspected:
        format = _INSPECTED.decode(row.inspected).format
    return RunFile(row.key, row.size_bytes, row.sha256, format)
