"""Assign the files of run data in a log directory to runs and lines.

As in TensorBoard and VisualDL, the name of a file decides whether the file is read. Its content decides the format.

A folder is a run. A folder below it is a line of this run, such as `train` or `valid`. Folders directly below a log
directory are separate runs, even if the log directory itself holds run data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

_NAME_PARTS = ("tfevents", "vdlrecords")
_EMPTY_SUFFIX = ".profile-empty"  # TensorFlow marks folders of profiles with an empty file with this suffix


class DataFile(msgspec.Struct, frozen=True, order=True):
    """A file of run data.

    Attributes:
        line: Folder relative to the run's folder; "" for the run's folder.
        path: Path of the file.
    """

    line: str
    path: str


def is_data_name(name: str) -> bool:
    """Return whether a file may hold run data, by its name."""
    return any(part in name for part in _NAME_PARTS) and not name.endswith(_EMPTY_SUFFIX)


def group_by_run(files: Iterable[tuple[str, str]], runs: Collection[str] = ()) -> dict[str, list[DataFile]]:
    """Return the files of each run, sorted by line and path.

    Args:
        files: Folder below the log directory, "" for the directory itself, and path of each file.
        runs: Folders that are runs because they hold profiles.

    Returns:
        The files by the folder of their run, "" for the log directory itself.
    """
    listed = list(files)
    parents = {folder for folder, _ in listed}.union(runs)
    groups: dict[str, list[DataFile]] = {}
    for folder, path in listed:
        parts = folder.split("/")
        ancestors = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        run = next((ancestor for ancestor in ancestors if ancestor in parents), folder)
        groups.setdefault(run, []).append(DataFile(folder[len(run) :].lstrip("/"), path))
    return {run: sorted(group) for run, group in groups.items()}
