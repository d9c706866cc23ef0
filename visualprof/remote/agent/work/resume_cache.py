"""What an attempt leaves on this machine for the next one, which may come here: trials of a search, steps of a case."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from visualprof.remote.agent.child_files import is_regular, link_or_copy, remove_folder, walk_files
from visualprof.remote.agent.state import StateFolder
from visualprof.remote.agent.work.result_folder import WorkFolder, safe_name
from visualprof.remote.protocol import Lease

SEARCH_FILE, MAX_SEARCH_BYTES = "search.json", 16 << 20
STEPS_FOLDER = "steps"
FOLDER_SUFFIX, MAX_TASKS = "-kept", 8  # of how many tasks, the latest


def work_folder(state: StateFolder, lease: Lease, attempt: int = 0) -> Path:
    """The work folder of a lease, another one for each attempt. attempt: another than that of the lease."""
    return state.work / f"{safe_name(lease.task)}-{attempt or lease.attempt}"


def save(state: StateFolder, lease: Lease) -> None:
    """Keep what the last attempt left that left something, beside its work folder, which is about to go."""
    outs = (WorkFolder(work_folder(state, lease, n)).out for n in range(lease.attempt, 0, -1))
    left = next((files for out in outs if (files := _of_use(out, lease))), None)
    if left is None:
        return
    with suppress(OSError):  # a full disk, or another task tidies up: the next attempt then begins with less
        _copy(left, _fresh(_kept(state, lease)))
        for folder in sorted(state.work.glob(f"*{FOLDER_SUFFIX}"), key=lambda one: one.stat().st_mtime)[:-MAX_TASKS]:
            remove_folder(folder)


def restore(state: StateFolder, lease: Lease, out: Path) -> None:
    """Lay what was kept into the folder of the result, for the child to find."""
    _copy(_of_use(_kept(state, lease), lease), out)


def discard(state: StateFolder, lease: Lease) -> None:
    """Remove what was kept of a task."""
    remove_folder(_kept(state, lease))


def _kept(state: StateFolder, lease: Lease) -> Path:
    return state.work / f"{safe_name(lease.task)}{FOLDER_SUFFIX}"


def _fresh(folder: Path) -> Path:
    remove_folder(folder)
    folder.mkdir()
    return folder


def _of_use(out: Path, lease: Lease) -> dict[str, Path]:
    """The files that another attempt can go on with, by their places in the folder of a result."""
    if lease.request.search.objective:
        file = out / SEARCH_FILE
        return {SEARCH_FILE: file} if is_regular(file) and file.stat().st_size <= MAX_SEARCH_BYTES else {}
    if not lease.request.case.name:
        return {}
    files = {file.relative_to(out).as_posix(): file for file in walk_files(out) if is_regular(file)}
    return files if any(place.startswith(f"{STEPS_FOLDER}/") for place in files) else {}


def _copy(files: dict[str, Path], folder: Path) -> None:
    for place, file in files.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(file, target)
