"""File transfers with the server. Both directions resume where they broke off."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from visualprof.remote.agent.child_files import BLOCK_BYTES, file_sha256, is_regular, open_regular, walk_files
from visualprof.remote.agent.errors import LeaseLost, StopRequested
from visualprof.remote.agent.link.client import Client, RequestRejected, Unreachable, retry
from visualprof.remote.protocol import File, Lease, TaskFailure

MAX_DOWNLOADS = 3
PART_BYTES = 8 << 20
MAX_FILES = 200
MAX_FILE_BYTES = 4 << 30
MAX_TOTAL_BYTES = 8 << 30
# Files that every result needs. They come first, however many files a child has left.
PRIORITY_FILES = ("job.json", "env.json", "status.json", "points.jsonl", "latencies.bin", "monitor.jsonl", "log.txt")
MAX_NAME_BYTES = 200
MAX_NAME_DEPTH = 2
UNFINISHED_SUFFIXES = (".partial", ".tmp", ".part", "~", ".")


@dataclass(frozen=True)
class ResultFile:
    """A file of a result.

    Attributes:
        name: Path below the result folder, with `/`.
        path: Path on this machine.
        size_bytes: Size of the file.
        sha256: Digest of the file, in hex.
    """

    name: str
    path: Path
    size_bytes: int
    sha256: str

    def open(self) -> BinaryIO:
        """Open the file for reading.

        Raises:
            OSError: The file was deleted, or replaced by a link.
        """
        return open_regular(self.path)


def download(client: Client, lease: Lease, file: File, target: Path, stop: threading.Event) -> None:
    """Download a file of a lease to `target`. An existing file is reused if its SHA-256 matches.

    Raises:
        TaskFailure: The server refused the file, or it arrived damaged several times.
        StopRequested: `stop` was set.
        OSError: The file cannot be written.
    """
    part = target.with_name(f"{target.name}.{threading.get_ident()}.part")  # another task may download the same file
    url = file.url

    def download_rest() -> None:
        nonlocal url
        try:
            _download_rest(client, replace(file, url=url), part)
        except RequestRejected as error:
            if error.status != 403 or (renewed := _renew_url(client, lease, file)) == url:
                raise
            url = renewed
            raise Unreachable(f"the address of {file.name!r} has expired") from None

    for _ in range(MAX_DOWNLOADS):
        if not target.is_file():
            try:
                retry(download_rest, stop)
            except RequestRejected as error:
                raise TaskFailure("agent_error", f"the server refused to send {file.name!r}: {error}") from None
            part.rename(target)
        if file_sha256(target) == file.sha256:
            os.utime(target)
            return
        target.unlink()
    raise TaskFailure(
        "agent_error", f"{file.name!r} arrived damaged {MAX_DOWNLOADS} times: its SHA-256 is not {file.sha256}"
    )


def _renew_url(client: Client, lease: Lease, file: File) -> str:
    """Return a new signed address of a file of a lease."""
    files: list[dict[str, Any]] = client.post(lease.path("files"), {})["files"]
    return next((str(row["url"]) for row in files if row["sha256"] == file.sha256), "")


def _download_rest(client: Client, file: File, part: Path) -> None:
    """Append the missing bytes of a file.

    Raises:
        TaskFailure: The server has fewer bytes than it announced.
        Unreachable: The download broke off.
    """
    present_bytes = part.stat().st_size if part.exists() else 0
    if present_bytes > file.size_bytes:
        part.unlink()
        present_bytes = 0
    with part.open("ab") as out:
        if present_bytes < file.size_bytes and client.get(file.url, present_bytes, out.write) != present_bytes:
            out.truncate(0)
            client.get(file.url, 0, out.write)
        size = out.tell()
    if size < file.size_bytes:
        error = f"{file.name!r} arrived damaged: the server sent {size:,} of {file.size_bytes:,} bytes"
        raise TaskFailure("agent_error", error)


def upload_result(client: Client, lease: Lease, result: list[ResultFile], stop: threading.Event) -> None:
    """Upload every file of a result.

    Raises:
        TaskFailure: `disk_full` or `upload_failed`.
        LeaseLost: The server no longer knows the lease.
        StopRequested: `stop` was set.
    """
    try:
        retry(lambda: upload_files(client, lease.path("uploads"), result, stop, {}), stop)
    except RequestRejected as error:
        raise _upload_failure(error) from None
    except (KeyError, TypeError):
        raise TaskFailure("upload_failed", "the server's answer about the uploads is invalid") from None


def upload_files(
    client: Client, path: str, files: Sequence[ResultFile], stop: threading.Event, body: dict[str, Any]
) -> None:
    """Announce files to the server and upload the missing ones.

    Args:
        client: HTTP client of the server.
        path: Path of the announcement below the agent's API.
        files: The files.
        stop: Ends the upload when set.
        body: Further fields of the announcement.

    Raises:
        RequestRejected: The server answered with an error.
        Unreachable: The server did not answer.
        StopRequested: `stop` was set.
        OSError: A file cannot be read.
        TaskFailure: The server's answer is invalid.
    """
    descriptions = [{"name": f.name, "size_bytes": f.size_bytes, "sha256": f.sha256} for f in files]
    complete = False
    while not complete:
        answer = client.post(path, {**body, "files": descriptions})
        uploads: dict[str, dict[str, Any]] = {upload["name"]: upload for upload in answer["files"]}
        requested = [file for file in files if file.name in uploads]
        complete = all(_upload_rest(client, file, uploads[file.name], stop) for file in requested)


def _upload_rest(client: Client, file: ResultFile, upload: dict[str, Any], stop: threading.Event) -> bool:
    """Upload the missing bytes in parts, because a server may discard a request that breaks off.

    Returns:
        Whether the file is complete. Otherwise the next announcement returns addresses of further parts.

    Raises:
        Unreachable: An address expired, or the offset was wrong. The next announcement returns both again.
    """
    size, parts = file.size_bytes, _upload_parts(file, upload)
    for start, end, url, headers in parts:
        headers |= {"Content-Type": "application/octet-stream"}
        try:
            client.put(url, _read_blocks(file, start, end, stop), end - start, headers)
        except RequestRejected as error:
            if error.status == 403 or (error.status == 409 and "size" in error.body):
                raise Unreachable(str(error)) from None
            raise
    is_complete = int(upload["have"]) + sum(end - start for start, end, _, _ in parts) >= size
    if not (is_complete or parts):
        raise TaskFailure("upload_failed", "the server's answer about the uploads is invalid")
    return is_complete


def _upload_parts(file: ResultFile, upload: dict[str, Any]) -> list[tuple[int, int, str, dict[str, str]]]:
    """Return the parts to send: start and end offset, address, headers."""
    if upload.get("parts") or not upload["url"]:
        parts: list[dict[str, Any]] = upload["parts"]
        starts = [(int(part["offset"]), str(part["url"]), int(part["size_bytes"])) for part in parts]
        return [(start, start + length, url, {}) for start, url, length in starts]
    size, url = file.size_bytes, str(upload["url"])
    pieces = [(start, min(start + PART_BYTES, size)) for start in range(int(upload["have"]), size, PART_BYTES)]
    return [(start, end, url, {"Content-Range": f"bytes {start}-{end - 1}/{size}"}) for start, end in pieces]


def _read_blocks(file: ResultFile, start: int, end: int, stop: threading.Event) -> Iterator[bytes]:
    """Yield the bytes from `start` to `end` of a file, never more, even if the file grows."""
    with file.open() as source:
        source.seek(start)
        while start < end and (block := source.read(min(BLOCK_BYTES, end - start))):
            if stop.is_set():
                raise StopRequested
            start += len(block)
            yield block


def _upload_failure(error: RequestRejected) -> Exception:
    if error.status in (401, 404, 409):
        return LeaseLost(str(error))
    if error.status == 507:
        hint = "free space on the server's disk of runs"
        return TaskFailure("disk_full", f"the server's disk is full: {error.error}", hint)
    return TaskFailure("upload_failed", f"the server refused the result: {error}", str(error.body.get("hint") or ""))


def collect_files(folder: Path) -> tuple[list[ResultFile], list[str]]:
    """Return the files of a result, and the names left out.

    Links, special files, and files with an unacceptable name or size are left out.
    """
    files: list[ResultFile] = []
    left_out: list[str] = []
    used_names: set[str] = set()  # some file systems ignore case
    remaining_bytes = MAX_TOTAL_BYTES
    priority_files = (folder / name for name in PRIORITY_FILES if os.path.lexists(folder / name))
    for path in dict.fromkeys((*priority_files, *walk_files(folder))):
        name = path.relative_to(folder).as_posix()
        fits = len(files) < MAX_FILES and is_valid_name(name) and name.casefold() not in used_names and is_regular(path)
        size = path.stat().st_size if fits else 0
        if fits and size <= min(remaining_bytes, MAX_FILE_BYTES):
            used_names.add(name.casefold())
            remaining_bytes -= size
            files.append(ResultFile(name, path, size, file_sha256(path)))
        else:
            left_out.append(name.encode("utf-8", "replace").decode())
    return files, left_out


def is_valid_name(name: str) -> bool:
    """Return whether a result file may have this name: at most one folder deep, not hidden, harmless characters."""
    parts = name.split("/")
    return len(parts) <= MAX_NAME_DEPTH and all(map(_is_valid_part, parts))


def _is_valid_part(part: str) -> bool:
    fine = part.isprintable() and part == part.strip() and not set(part) & set('\\:*?"<>|')
    return (
        fine
        and not part.startswith(".")
        and not part.endswith(UNFINISHED_SUFFIXES)
        and 0 < len(part.encode()) <= MAX_NAME_BYTES
    )
