"""Check an uploaded recording in a separate process, before it becomes a file of the log directory."""

from __future__ import annotations

from pathlib import Path

from visualprof.messages import msg
from visualprof.reader.child import Limits, Slots, run_in_child
from visualprof.reader.recognition import recognize
from visualprof.reader.source import Progress, Source

# Only the head of the file is read.
_LIMITS = Limits(20.0, 256 << 20, 0, msg("logdir.open_file_directly", "open it with `visualprof FILE` instead"))
_SLOTS = Slots(2, 6)  # their own: a slow model delays no recording


def recognize_upload(path: Path) -> str:
    """Return the format of an uploaded recording.

    Raises:
        FormatError: The file is not a recording, or checking it exceeds a limit.
        ReadFailed: Too many files are being checked.
    """
    return run_in_child(_recognize, path, path.name, _LIMITS, _SLOTS)


def _recognize(path: str, progress: Progress) -> str:
    del progress  # takes no time
    return recognize(Source(path)).name
