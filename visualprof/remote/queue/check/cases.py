"""Read an uploaded case in a separate process with limits. The server itself parses nothing of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from visualprof.errors import BadParameter, VisualprofError
from visualprof.messages import msg
from visualprof.reader.child import Limits, ReadFailed, Slots, run_in_child
from visualprof.reader.source import Progress
from visualprof.remote.cases.bundle import pack, read_uploaded_case
from visualprof.remote.cases.folder import Case
from visualprof.remote.protocol import TaskFailure
from visualprof.remote.queue.errors import disk_errors

TIMEOUT_S, BYTES_PER_S = 20.0, 2 << 20  # a zip may hold gigabytes of data, which take a while to pack
MEMORY_BYTES = 256 << 20
_SLOTS = Slots(3, 9)  # their own: a slow case delays no model


def read_case_upload(packed: Path, name: str, folder: Path, bundle: Path | None = None) -> Case:
    """Return the case in an uploaded zip, without its files.

    Args:
        packed: The zip.
        name: Name of the zip.
        folder: An empty folder for the extracted files. The caller deletes it.
        bundle: Where to write the bundle for agents; not written by default.

    Raises:
        BadParameter: The zip is not a valid case, or reading it exceeds a limit.
        ReadFailed: Too many cases are being read.
        DiskFull: The extracted files do not fit on the disk.
    """
    limits = Limits(
        round(TIMEOUT_S + packed.stat().st_size / BYTES_PER_S, 1),
        MEMORY_BYTES,
        0,
        msg("queue.simplify_case", "remove what a case does not need: it has code, settings and a little data"),
    )
    try:
        return run_in_child(partial(_read, name=name, folder=folder, bundle=bundle), packed, name[:80], limits, _SLOTS)
    except ReadFailed as error:
        if error.status == 422:  # a limit was exceeded, or the process died of the content
            raise BadParameter(error.error, error.hint) from None
        raise


def _read(path: str, progress: Progress, *, name: str, folder: Path, bundle: Path | None) -> Case:
    """Read the case in the separate process."""
    del progress  # not reported
    try:
        with disk_errors(name[:80]):
            case = read_uploaded_case(Path(path), name, folder)
            if bundle:
                pack(case, bundle)
    except TaskFailure as failure:
        raise BadParameter(failure.error, failure.hint) from None
    except OSError as error:
        raise VisualprofError(
            f"{name[:80]}: {error.strerror}", msg("queue.log_says_more", "the log says more")
        ) from error
    return replace(case, files={}, data_dir=None)
