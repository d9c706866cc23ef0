"""Upload recordings into the log directory, where they are read like any other file."""

from __future__ import annotations

import errno
import os
import re
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import msgspec
from flask import request
from msgspec import Meta

from visualprof.errors import BadParameter, Forbidden, NotFound
from visualprof.messages import msg
from visualprof.reader.logdir.scan import Root
from visualprof.reader.logdir.uploads import recognize_upload
from visualprof.remote.queue.errors import Conflict, disk_errors
from visualprof.server.api.model_graphs import UploadQuery
from visualprof.server.api.models import CHUNK_BYTES, UploadTooLarge
from visualprof.server.body_limits import MAX_RECORDING_BYTES
from visualprof.server.identity import current_principal
from visualprof.server.routes import READ_ONLY_ERROR, Resource, mutation
from visualprof.server.services import Services
from visualprof.server.user_slots import UserSlots

MAX_UPLOADS_PER_USER = 2  # of a user of a server with accounts, at the same time
_MAX_NAME_BYTES = 200
_UNFINISHED = (".partial", ".tmp", ".part", ".crdownload", ".swp", "~")
_SUFFIXES = re.compile(r"(\.[A-Za-z_-]{1,20})+$")


class RecordingQuery(UploadQuery, kw_only=True):
    """A recording, and the run that it belongs to."""

    run: Annotated[str, Meta(description="run of an earlier upload to which this file is added; else a new run")] = ""


class UploadedRecording(msgspec.Struct):
    """A recording in the log directory.

    Attributes:
        run: Id of its run.
        file: Its path for users.
        format: Its format.
    """

    run: str
    file: str
    format: str


class Recordings(Resource):
    """The route for uploads of recordings."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._folders: dict[str, tuple[Path, str | None]] = {}  # by run: folder that an upload created, and its user
        self._lock = threading.Lock()
        self._user_slots = UserSlots(MAX_UPLOADS_PER_USER)

    @mutation(
        "POST", "/runs", status=201, content="application/octet-stream",
        errors={**READ_ONLY_ERROR, 404: "there is no such run", 409: "the name is taken, or the server has no folder",
                413: "too large", 422: "not a recording", 429: "a quota is used up", 507: "the disk is full"},
    )  # fmt: skip
    def upload_recording(self, query: RecordingQuery) -> UploadedRecording:
        """Upload a recording as a new run, or add it to a run that an upload created."""
        if self._settings.access.read_only:
            raise Forbidden(
                msg("server.server_read_only_2", "this server is read-only"),
                msg("server.put_file_into_log", "put the file into the log directory"),
            )
        name = _checked_name(query.name)
        self._visible.check_upload_quota(request.content_length or 0)
        user = current_principal().user
        with self._user_slots.hold(user) if user is not None else nullcontext():
            return self._save(name, query.run, request.stream.read)

    def _save(self, name: str, run: str, read: Callable[[int], bytes]) -> UploadedRecording:
        root = self._logdir.home
        if root.address or not root.path.is_dir():
            raise Conflict(
                msg("server.no_folder_for_recordings", "this server shows single files or remote folders only"),
                msg("server.start_with_folder", "start it with a local folder to add files here"),
            )
        with _folder_errors(), tempfile.TemporaryDirectory(prefix=".upload-", dir=root.path) as folder:
            path = Path(folder, name)
            _receive(path, read)
            format = recognize_upload(path)
            path = self._place(root, path, run)
        self._logdir.rescan()
        file = "/".join(filter(None, (root.prefix, path.relative_to(root.path).as_posix())))
        return UploadedRecording(self._run_of(file), file, format)

    def _run_of(self, file: str) -> str:
        """Return the run of a file. It is remembered, so that further files can be added."""
        spans = (
            (run.id, span) for run in self._logdir.listing().runs for worker in run.workers for span in worker.spans
        )
        run = next((run for run, span in spans if span.log_file.file == file), file.rpartition("/")[0])
        with self._lock:
            self._folders.setdefault(run, self._folders[file.rpartition("/")[0]])
        return run

    def _place(self, root: Root, path: Path, run: str) -> Path:
        """Move a received file into the folder of its run, and return its new path."""
        user = current_principal().user
        with self._lock:
            if run:
                folder, owner = self._folders.get(run, (root.path, ""))
                if owner != user or not folder.is_dir():
                    raise NotFound(
                        msg("server.no_uploaded_run", f"there is no uploaded run {run!r}"),
                        msg("server.leave_out_run", "leave out the run to create a new one"),
                    )
            else:
                folder = self._new_folder(root, path.name)
                run = "/".join(filter(None, (root.prefix, folder.name)))
                if user is not None:  # before the run becomes visible
                    key = self._visible.sharing_key(run)
                    self._job_service.open().agents.assign_folder(user, key, public=False)
                folder.mkdir()
                self._folders[run] = folder, user
            target = folder / path.name
            if os.path.lexists(target):
                raise _name_taken(path.name)
            return path.rename(target)

    def _new_folder(self, root: Root, name: str) -> Path:
        """Return the folder of a new run, named after its first file.

        Raises:
            Conflict: A run that the user can see has this name. A run that the user cannot see is not disclosed.
        """
        stem, number = _SUFFIXES.sub("", name) or "recording", 1
        folder = root.path / stem
        while os.path.lexists(folder):
            if self._visible.can_see("/".join(filter(None, (root.prefix, folder.name)))):
                raise _name_taken(folder.name)
            number += 1
            folder = root.path / f"{stem}-{number}"
        return folder


def _name_taken(name: str) -> Conflict:
    return Conflict(
        msg("server.recording_name_taken", f"{name} exists already in the log directory"),
        msg("server.rename_recording", "rename the file and try again"),
    )


def _checked_name(name: str) -> str:
    """Return the name of an uploaded file without its folders.

    Raises:
        BadParameter: No file of a log directory can have this name.
    """
    plain = name.replace("\\", "/").rpartition("/")[2]
    is_hidden = not plain or plain.startswith(".") or plain.lower().endswith(_UNFINISHED)
    too_long = len(plain.encode("utf-8", "replace")) > _MAX_NAME_BYTES
    if is_hidden or too_long or not plain.isprintable():
        raise BadParameter(
            msg("server.no_name_of_recording", f"{plain[:100]!r} cannot be the name of a recording"),
            msg("server.rename_recording", "rename the file and try again"),
        )
    return plain


def _receive(path: Path, read: Callable[[int], bytes]) -> None:
    """Write the body of the request to a file.

    Raises:
        UploadTooLarge: The body is too large.
    """
    size = 0
    with path.open("xb") as file:
        while chunk := read(CHUNK_BYTES):
            size += len(chunk)
            if size > MAX_RECORDING_BYTES:
                raise UploadTooLarge(
                    msg("server.recording_over_gib", f"{path.name} is over {MAX_RECORDING_BYTES >> 30} GiB"),
                    msg("server.put_into_log_directory", "put it into the log directory instead"),
                )
            file.write(chunk)


@contextmanager
def _folder_errors() -> Generator[None]:
    """Translate errors of the disk. They do not name folders of the server.

    Raises:
        Forbidden: The server may not write into the log directory.
        DiskFull: The disk is full.
    """
    with disk_errors(msg("server.log_directory", "the log directory")):
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            raise Forbidden(
                msg("server.log_directory_not_writable", "the server may not write into its log directory"),
                msg("server.allow_log_directory", "allow it to write there, or put the file there yourself"),
            ) from error
