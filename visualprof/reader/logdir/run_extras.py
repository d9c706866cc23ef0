"""Files of runs other than their recordings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from visualprof.reader.logdir.scan import STEP_TIMES_SUFFIX, LiveFolder, LogFile, Problem, Root, is_run_data
from visualprof.reader.run_data.folders import DataFile, group_by_run

_MINUTE_NS = 60 * 10**9


class RunExtras(msgspec.Struct, frozen=True):
    """Files of a run other than its recordings; a run may have nothing else.

    Attributes:
        root: The log directory.
        modified_ns: Modification time of the run's folder.
        live: Path of its `.live` folder, "" without one.
        series: Paths of its step-time files.
        data: Its files of run data.
    """

    root: Root
    modified_ns: int
    live: str = ""
    series: tuple[str, ...] = ()
    data: tuple[DataFile, ...] = ()


def collect_extras(
    items: Iterable[LogFile | LiveFolder | Problem], recorded: Collection[str] = ()
) -> dict[str, RunExtras]:
    """Return the extras of runs among the results of a walk.

    Args:
        items: The results.
        recorded: Ids of runs with recordings.
    """
    extras: dict[str, RunExtras] = {}
    data: list[LogFile] = []
    for item in items:
        if isinstance(item, LogFile) and is_run_data(item.name):
            data.append(item)
        if isinstance(item, LiveFolder):
            run = item.root.run_id(item.folder or ".")
            series = extras[run].series if run in extras else ()
            extras[run] = RunExtras(item.root, item.modified_ns, item.path, series)
        elif isinstance(item, LogFile) and item.name.endswith(STEP_TIMES_SUFFIX):
            run = item.root.run_id(item.folder or ".")
            run_extras = extras.get(run) or RunExtras(item.root, item.version.mtime_ns)
            extras[run] = replace(run_extras, series=(*run_extras.series, item.path))
    _add_run_data(extras, data, recorded)
    return extras


def _add_run_data(extras: dict[str, RunExtras], data: Sequence[LogFile], recorded: Collection[str]) -> None:
    """Add the files of run data to the extras of their runs."""
    for root in {file.root for file in data}:
        files = {file.path: file for file in data if file.root == root}
        prefix = f"{root.prefix}/" if root.prefix else ""
        runs = {run.removeprefix(prefix) for run in recorded if run.startswith(prefix)}
        for folder, group in group_by_run(((file.folder, path) for path, file in files.items()), runs).items():
            run = root.run_id(folder or ".")
            # A file that grows changes its run once per minute only.
            modified_ns = max(files[entry.path].version.mtime_ns for entry in group) // _MINUTE_NS * _MINUTE_NS
            run_extras = extras.get(run) or RunExtras(root, modified_ns)
            extras[run] = replace(run_extras, data=tuple(group), modified_ns=max(modified_ns, run_extras.modified_ns))
