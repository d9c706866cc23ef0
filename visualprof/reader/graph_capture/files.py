"""Find capture traces, and the recordings to which they belong.

vLLM writes `capture_traces/` into the folder of its recordings; TraceLens puts it next to that folder and adds a list
of its files, which is not a trace. SGLang writes `bs_<batch>_rank<rank>.json.gz`, one file per batch size.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from visualprof.reader.digest import blake2b
from visualprof.reader.memory_snapshot.recordings import find_recordings, find_snapshots, is_snapshot_name
from visualprof.reader.source import Source

CAPTURE_FOLDER = "capture_traces"
MAX_CAPTURES = 512  # per folder
_SETTLE_NS = 2 * 10**9  # a folder that changed more recently may change again without a new time
_JSON_NAME = re.compile(r"\.json(\.gz)?$", re.IGNORECASE)
_TRACE_NAME = re.compile(r"^(?!execution_details\.json$).*\.json(\.gz)?$", re.IGNORECASE)
_CAPTURE_NAME = re.compile(r"^(bs_\d+_rank_?\d+|graph_capture_rank_?\d+)(?![a-z0-9]).*\.json(\.gz)?$", re.IGNORECASE)
# SGLang's recordings use the second one.
_RANK_PATTERNS = (re.compile(r"rank_?(\d+)", re.IGNORECASE), re.compile(r"-TP-(\d+)"))

FolderLister = Callable[[str | Path], list[str]]  # returns the sorted names in a folder, none if it does not exist


def _list_folder(folder: str | Path) -> list[str]:
    """Return the sorted names in a folder."""
    try:
        return sorted(os.listdir(folder))
    except OSError:  # missing or not readable
        return []


def is_attached_capture(path: str, root: str, list_folder: FolderLister = _list_folder) -> bool:
    """Return whether this is a capture trace that is read with its recordings, rather than one opened on its own."""
    folder, name = os.path.split(path)
    if CAPTURE_FOLDER in Path(os.path.relpath(folder, root)).parts:
        return bool(_JSON_NAME.search(name))
    return path != root and bool(_CAPTURE_NAME.match(name)) and any(map(_is_recording, list_folder(folder)))


def find_captures(path: str | Path, list_folder: FolderLister | None = None) -> list[Path]:
    """Return the nearest capture traces of a recording, those of its rank first; the recordings of a memory snapshot.

    A capture has none itself.
    """
    folder, name = Path(path).parent, Path(path).name
    if is_snapshot_name(name):
        return [file for file in find_recordings(path, list_folder or _list_folder) if not _leads_out(file)]
    if folder.name == CAPTURE_FOLDER or _CAPTURE_NAME.match(name):
        return []
    changed_ns = (
        ()
        if list_folder
        else tuple(map(_changed_ns, (folder, folder / CAPTURE_FOLDER, folder.parent / CAPTURE_FOLDER)))
    )
    settled = bool(changed_ns) and time.time_ns() - max(changed_ns) > _SETTLE_NS
    listed = _cached_captures(folder, changed_ns) if settled else _nearest_captures(folder, list_folder or _list_folder)
    rank = _rank(name)
    return sorted(listed, key=lambda file: (_rank(file.name) != rank, file.name))[:MAX_CAPTURES]


def snapshot_names(path: str | Path) -> list[str]:
    """Return the names of the memory snapshots that may be of the same process as a recording."""
    return find_snapshots(path, _list_folder(Path(path).parent))


def _nearest_captures(folder: Path, list_folder: FolderLister) -> list[Path]:
    """Return the nearest capture traces of a folder's recordings."""
    listed = [folder / name for name in list_folder(folder) if _CAPTURE_NAME.match(name)]
    for capture_folder in (folder / CAPTURE_FOLDER, folder.parent / CAPTURE_FOLDER):
        listed = listed or [
            capture_folder / other for other in list_folder(capture_folder) if _TRACE_NAME.search(other)
        ]
    return [file for file in listed if not _leads_out(file)]


def _leads_out(file: Path) -> bool:
    """Return whether a capture is reached through a link out of the folder that holds it, or its `capture_traces`."""
    if not (os.path.islink(file) or os.path.islink(file.parent)):
        return False
    base = file.parent.parent if file.parent.name == CAPTURE_FOLDER else file.parent
    return not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(base))


@lru_cache(maxsize=64)
def _cached_captures(folder: Path, changed_ns: tuple[int, ...]) -> list[Path]:
    """Return `_nearest_captures`, cached while no folder changes.

    Each of a thousand ranks in one folder asks for them.
    """
    return _nearest_captures(folder, _list_folder)


def _changed_ns(folder: Path) -> int:
    """Return a folder's modification time in ns, 0 if it does not exist."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def recording_fingerprint(path: str | Path) -> str:
    """Return a digest that identifies a recording's content and the captures that are read with it."""
    file_fingerprint = Source(path).fingerprint()
    captures = find_captures(path)
    if not captures:
        return file_fingerprint
    return blake2b(
        "\n".join([file_fingerprint, *map(_file_state, captures)]).encode("utf-8", "replace"), digest_size=16
    ).hexdigest()


def captures_stamp(folder: str) -> int:
    """Return a number that changes with the captures of a folder's recordings, 0 without captures."""
    return hash_states([_file_state(capture) for capture in find_captures(Path(folder) / "recording")])


def recordings_stamp(path: str, names: Sequence[str] | None) -> int:
    """Return a number that changes with the recordings of a memory snapshot, 0 without any.

    Args:
        path: The snapshot.
        names: The relevant names in its folder, sorted; `None` to list the folder.
    """

    def list_names(folder: str | Path) -> list[str]:
        return _list_folder(folder) if names is None else list(names)

    return hash_states([_file_state(file) for file in find_captures(path, list_names)])


def hash_states(states: Sequence[str]) -> int:
    """Return a number that changes with the states, 0 without states."""
    if not states:
        return 0
    return int.from_bytes(blake2b("\n".join(states).encode("utf-8", "replace"), digest_size=6).digest(), "little") + 1


def _file_state(file: Path) -> str:
    """Return name, size and modification time of a file as text."""
    try:
        status = file.stat()
    except OSError:  # deleted since it was listed
        return f"{file.name}:"
    return f"{file.name}:{status.st_size}:{status.st_mtime_ns}"


def _is_recording(name: str) -> bool:
    return bool(_TRACE_NAME.search(name)) and not _CAPTURE_NAME.match(name)


def _rank(name: str) -> str:
    match = next(filter(None, (rank_pattern.search(name) for rank_pattern in _RANK_PATTERNS)), None)
    return match[1] if match else ""
