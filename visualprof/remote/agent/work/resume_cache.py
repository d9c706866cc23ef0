"""Files that one attempt of a task leaves for the next attempt on this machine: trials of a search, steps of a case."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from visualprof.remote.agent.child_files import is_regular, link_or_copy, remove_folder, walk_files
from visualprof.remote.agent.state import StateFolder
from visualprof.remote.agent.work.result_folder import WorkFolder, safe_name
from visualprof.remote.protocol import Lease

SEARCH_FILE, MAX_SEARCH_BYTES = "search.json", 16 << 20
STEPS_FOLDER = "steps"
FOLDER_SUFFIX, MAX_TASKS = "-kept", 8  # the latest tasks


def work_folder(state: StateFolder, lease: Lease, attempt: int = 0) -> Path:
    """Return the work folder of an attempt; by default the attempt of the lease. Each attempt has its own."""
    return state.work / f"{safe_name(lease.task)}-{attempt or lease.attempt}"


def save(state: StateFolder, lease: Lease) -> None:
    """Save the resumable files of the latest attempt that left any, before its work folder is deleted."""
    outs = (WorkFolder(work_folder(state, lease, n)).out for n in range(lease.attempt, 0, -1))
    files = next((files for out in outs if (files := _resumable_files(out, lease))), None)
    if files is None:
        return
    with suppress(OSError):  # on a full disk, or a concurrent clean-up, the next attempt starts with less
        _copy_files(files, _empty_folder(_cache_folder(state, lease)))
        for folder in sorted(state.work.glob(f"*{FOLDER_SUFFIX}"), key=lambda path: path.stat().st_mtime)[:-MAX_TASKS]:
            remove_folder(folder)


def restore(state: StateFolder, lease: Lease, out: Path) -> None:
    """Copy the saved files into the result folder, where the child finds them."""
    _copy_files(_resumable_files(_cache_folder(state, lease), lease), out)


def discard(state: StateFolder, lease: Lease) -> None:
    """Delete the saved files of a task."""
    remove_folder(_cache_folder(state, lease))


def _cache_folder(state: StateFolder, lease: Lease) -> Path:
    return state.work / f"{safe_name(lease.task)}{FOLDER_SUFFIX}"


def _empty_folder(folder: Path) -> Path:
    remove_folder(folder)
    folder.mkdir()
    return folder


def _resumable_files(out: Path, lease: Lease) -> dict[str, Path]:
    """Return the files that another attempt can resume from, by their paths in the result folder."""
    if lease.request.search.objective:
        file = out / SEARCH_FILE
        return {SEARCH_FILE: file} if is_regular(file) and file.stat().st_size <= MAX_SEARCH_BYTES else {}
    if not lease.request.case.name:
        return {}
    files = {file.relative_to(out).as_posix(): file for file in walk_files(out) if is_regular(file)}
    return files if any(place.startswith(f"{STEPS_FOLDER}/") for place in files) else {}


def _copy_files(files: dict[str, Path], folder: Path) -> None:
    for place, file in files.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(file, target)
