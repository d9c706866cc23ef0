"""Files from and to the server: both ways go on where they broke off."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from visualprof.remote.agent.client import Answered, Client, Stopped, Unreachable, retried
from visualprof.remote.agent.faults import Failure, Stale
from visualprof.remote.agent.files import BLOCK, digest, is_plain, open_plain
from visualprof.remote.protocol import File

TRIES = 3
FILES_MAX = 1000


@dataclass(frozen=True)
class Piece:
    """A file of the result. name: below the result's folder, with `/`."""

    name: str
    path: Path
    size_bytes: int
    sha256: str


def fetch(client: Client, file: File, target: Path, stop: threading.Event) -> None:
    """Fetches a file of a lease into `target`; what is there already is kept when its sha256 is right.

    Raises: Failure, Stopped, OSError.
    """
    part = target.with_name(target.name + ".part")
    for _ in range(TRIES):
        if not target.is_file():
            try:
                retried(lambda: _fetch_rest(client, file, part), stop)
            except Answered as error:
                raise Failure("agent_error", f"the server did not give out {file.name!r}: {error}") from None
            part.rename(target)
        if digest(target) == file.sha256:
            return
        target.unlink()
    raise Failure("agent_error", f"{file.name!r} arrived damaged {TRIES} times: its sha256 is not {file.sha256}")


def _fetch_rest(client: Client, file: File, part: Path) -> None:
    """Appends what is missing. Raises: Unreachable: not all of it came."""
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
        raise Unreachable(f"{file.name!r} broke off after {size:,} of {file.size_bytes:,} bytes")


def send(client: Client, task: str, lease: str, pieces: list[Piece], stop: threading.Event) -> None:
    """Uploads every file of a result.

    Raises: Failure: disk_full, upload_failed. Stale. Stopped.
    """

    def once() -> None:
        files = [{"name": p.name, "size_bytes": p.size_bytes, "sha256": p.sha256} for p in pieces]
        answer = client.post(f"tasks/{task}/uploads?lease={lease}", {"files": files})
        wanted: dict[str, dict[str, Any]] = {each["name"]: each for each in answer["files"]}
        for piece in pieces:
            if piece.name in wanted:
                _send_rest(client, piece, wanted[piece.name], stop)

    try:
        retried(once, stop)
    except Answered as error:
        raise _upload_failure(error) from None
    except (KeyError, TypeError):
        raise Failure("upload_failed", "the server's answer about the uploads was not understood") from None


def _send_rest(client: Client, piece: Piece, wanted: dict[str, Any], stop: threading.Event) -> None:
    """PUTs what the server does not have yet. Raises: Unreachable: the address expired, or the start was wrong."""
    have = int(wanted["have"])
    if have >= piece.size_bytes > 0:
        return
    span = f"{have}-{piece.size_bytes - 1}/{piece.size_bytes}" if piece.size_bytes else "*/0"
    headers = {"Content-Range": f"bytes {span}", "Content-Type": "application/octet-stream"}
    try:
        client.put(str(wanted["url"]), _blocks(piece, have, stop), piece.size_bytes - have, headers)
    except Answered as error:
        if error.status == 403 or (error.status == 409 and "size" in error.body):
            raise Unreachable(str(error)) from None  # the next `uploads` gives a fresh address and what is there
        raise


def _blocks(piece: Piece, start: int, stop: threading.Event) -> Iterator[bytes]:
    """The file from `start`, never more than was announced even when it grows."""
    left = piece.size_bytes - start
    with open_plain(piece.path) as file:
        file.seek(start)
        while left and (block := file.read(min(BLOCK, left))):
            if stop.is_set():
                raise Stopped
            left -= len(block)
            yield block


def _upload_failure(error: Answered) -> Exception:
    if error.status in (401, 404, 409):
        return Stale(str(error))
    if error.status == 507:
        return Failure(
            "disk_full", f"the server's disk is full: {error.error}", "free space where the server keeps runs"
        )
    return Failure("upload_failed", f"the server refused the result: {error}", str(error.body.get("hint") or ""))


def pieces_of(folder: Path) -> tuple[list[Piece], list[str]]:
    """The plain files below a folder, and what was left out: links and the like, which a child could point anywhere."""
    pieces: list[Piece] = []
    left_out: list[str] = []
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            told = path.relative_to(folder).as_posix()
            if len(pieces) >= FILES_MAX or not _is_wanted(path, told):
                left_out.append(told.encode("utf-8", "replace").decode())
                continue
            pieces.append(Piece(told, path, path.stat().st_size, digest(path)))
    return pieces, left_out


def _is_wanted(path: Path, name: str) -> bool:
    return is_plain(path) and name.isprintable() and "\\" not in name and len(name) <= 200
