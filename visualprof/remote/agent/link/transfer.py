"""Files from and to the server: both ways go on where they broke off."""

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
# However much a child has left: without these it is no result.
PRIORITY_FILES = ("job.json", "env.json", "status.json", "points.jsonl", "latencies.bin", "monitor.jsonl", "log.txt")
MAX_NAME_BYTES = 200  # bytes
MAX_NAME_DEPTH = 2
UNFINISHED_SUFFIXES = (".partial", ".tmp", ".part", "~", ".")


@dataclass(frozen=True)
class ResultFile:
    """A file of the result. name: below the result's folder, with `/`."""

    name: str
    path: Path
    size_bytes: int
    sha256: str

    def open(self) -> BinaryIO:
        """Its bytes. Raises: OSError: it is gone, or a link now."""
        return open_regular(self.path)


def download(client: Client, lease: Lease, file: File, target: Path, stop: threading.Event) -> None:
    """Fetch a file of a lease into `target`; what is there already is kept when its sha256 is right.

    Raises: TaskFailure, StopRequested, OSError.
    """
    part = target.with_name(f"{target.name}.{threading.get_ident()}.part")  # another task may fetch it, too
    url = file.url

    def rest() -> None:
        nonlocal url
        try:
            _fetch_rest(client, replace(file, url=url), part)
        except RequestRejected as error:
            if error.status != 403 or (new := _renewed_url(client, lease, file)) == url:
                raise
            url = new
            raise Unreachable(f"the address of {file.name!r} is too old") from None

    for _ in range(MAX_DOWNLOADS):
        if not target.is_file():
            try:
                retry(rest, stop)
            except RequestRejected as error:
                raise TaskFailure("agent_error", f"the server did not give out {file.name!r}: {error}") from None
            part.rename(target)
        if file_sha256(target) == file.sha256:
            os.utime(target)
            return
        target.unlink()
    raise TaskFailure(
        "agent_error", f"{file.name!r} arrived damaged {MAX_DOWNLOADS} times: its sha256 is not {file.sha256}"
    )


def _renewed_url(client: Client, lease: Lease, file: File) -> str:
    """A new address of a file of a lease."""
    files: list[dict[str, Any]] = client.post(lease.path("files"), {})["files"]
    return next((str(each["url"]) for each in files if each["sha256"] == file.sha256), "")


def _fetch_rest(client: Client, file: File, part: Path) -> None:
    """Append what is missing.

    Raises: TaskFailure: the server has less than it said. Unreachable: not all of it came.
    """
    have = part.stat().st_size if part.exists() else 0
    if have > file.size_bytes:
        part.unlink()
        have = 0
    with part.open("ab") as out:
        if have < file.size_bytes and client.get(file.url, have, out.write) != have:
            out.truncate(0)
            client.get(file.url, 0, out.write)
        size = out.tell()
    if size < file.size_bytes:
        error = f"{file.name!r} arrived damaged: the server gave {size:,} of {file.size_bytes:,} bytes"
        raise TaskFailure("agent_error", error)


def upload_result(client: Client, lease: Lease, result: list[ResultFile], stop: threading.Event) -> None:
    """Upload every file of a result.

    Raises: TaskFailure: disk_full, upload_failed. LeaseLost. StopRequested.
    """
    try:
        retry(lambda: upload_files(client, lease.path("uploads"), result, stop, {}), stop)
    except RequestRejected as error:
        raise _upload_failure(error) from None
    except (KeyError, TypeError):
        raise TaskFailure("upload_failed", "the server's answer about the uploads was not understood") from None


def upload_files(
    client: Client, path: str, files: Sequence[ResultFile], stop: threading.Event, body: dict[str, Any]
) -> None:
    """Announce files there and sends what the server does not have of them. body: what is announced besides.

    Raises: Answered, Unreachable, StopRequested, OSError. TaskFailure: the answer has no sense.
    """
    announced = [{"name": f.name, "size_bytes": f.size_bytes, "sha256": f.sha256} for f in files]
    whole = False
    while not whole:
        answer = client.post(path, {**body, "files": announced})
        wanted: dict[str, dict[str, Any]] = {upload["name"]: upload for upload in answer["files"]}
        named = [file for file in files if file.name in wanted]
        whole = all(_send_rest(client, file, wanted[file.name], stop) for file in named)


def _send_rest(client: Client, file: ResultFile, wanted: dict[str, Any], stop: threading.Event) -> bool:
    """PUTs what is not there yet, in parts: a server may keep nothing of a request that is cut off.

    Returns: whether that was all; else the next `uploads` has the addresses of further parts.

    Raises: Unreachable: an address expired, or the start was wrong; the next `uploads` says both anew.
    """
    size, parts = file.size_bytes, _parts(file, wanted)
    for start, end, url, headers in parts:
        headers |= {"Content-Type": "application/octet-stream"}
        try:
            client.put(url, _blocks(file, start, end, stop), end - start, headers)
        except RequestRejected as error:
            if error.status == 403 or (error.status == 409 and "size" in error.body):
                raise Unreachable(str(error)) from None
            raise
    whole = int(wanted["have"]) + sum(end - start for start, end, _, _ in parts) >= size
    if not (whole or parts):
        raise TaskFailure("upload_failed", "the server's answer about the uploads was not understood")
    return whole


def _parts(file: ResultFile, wanted: dict[str, Any]) -> list[tuple[int, int, str, dict[str, str]]]:
    """What is sent: from where, to where, to which address, with which headers."""
    if wanted.get("parts") or not wanted["url"]:
        parts: list[dict[str, Any]] = wanted["parts"]
        starts = [(int(part["offset"]), str(part["url"]), int(part["size_bytes"])) for part in parts]
        return [(start, start + length, url, {}) for start, url, length in starts]
    size, url = file.size_bytes, str(wanted["url"])
    pieces = [(start, min(start + PART_BYTES, size)) for start in range(int(wanted["have"]), size, PART_BYTES)]
    return [(start, end, url, {"Content-Range": f"bytes {start}-{end - 1}/{size}"}) for start, end in pieces]


def _blocks(file: ResultFile, start: int, end: int, stop: threading.Event) -> Iterator[bytes]:
    """The bytes from `start` to `end` of a file, never more, even when it grows."""
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
        hint = "free space where the server keeps runs"
        return TaskFailure("disk_full", f"the server's disk is full: {error.error}", hint)
    return TaskFailure("upload_failed", f"the server refused the result: {error}", str(error.body.get("hint") or ""))


def collect_files(folder: Path) -> tuple[list[ResultFile], list[str]]:
    """The files of a result, and those left out: links and the like, and what no server takes, by name or size."""
    files: list[ResultFile] = []
    left_out: list[str] = []
    taken: set[str] = set()  # some file systems do not tell apart what differs by case
    room = MAX_TOTAL_BYTES
    own = (folder / name for name in PRIORITY_FILES if os.path.lexists(folder / name))
    for path in dict.fromkeys((*own, *walk_files(folder))):
        name = path.relative_to(folder).as_posix()
        fits = len(files) < MAX_FILES and is_valid_name(name) and name.casefold() not in taken and is_regular(path)
        size = path.stat().st_size if fits else 0
        if fits and size <= min(room, MAX_FILE_BYTES):
            taken.add(name.casefold())
            room -= size
            files.append(ResultFile(name, path, size, file_sha256(path)))
        else:
            left_out.append(name.encode("utf-8", "replace").decode())
    return files, left_out


def is_valid_name(name: str) -> bool:
    """Whether a result's file may have that name: at most one folder deep, not hidden, of harmless characters."""
    parts = name.split("/")
    return len(parts) <= MAX_NAME_DEPTH and all(map(_is_harmless, parts))


def _is_harmless(part: str) -> bool:
    fine = part.isprintable() and part == part.strip() and not set(part) & set('\\:*?"<>|')
    return (
        fine
        and not part.startswith(".")
        and not part.endswith(UNFINISHED_SUFFIXES)
        and 0 < len(part.encode()) <= MAX_NAME_BYTES
    )
