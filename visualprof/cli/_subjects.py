"""Read the subjects of views without a trace: models, run data and reports of measured models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from visualprof.errors import NotFound

if TYPE_CHECKING:
    from visualprof.reader.graph import ModelGraph
    from visualprof.reader.results.report import Report
    from visualprof.reader.run_data.run import RunData
    from visualprof.views import Subject


def model_at(path: str) -> ModelGraph:
    """Return the model in a file, or the only model in a folder and its subfolders.

    Raises:
        NotFound: The folder has no model, or several.
    """
    from visualprof.reader.child import run_in_child
    from visualprof.reader.models import read_model

    return run_in_child(read_model, _only_model_below(path) if Path(path).is_dir() else path)


def _only_model_below(folder: str) -> str:
    from visualprof.reader.logdir.scan import LogFile, roots, walk
    from visualprof.reader.models import model_suffixes, recognize_model
    from visualprof.reader.source import Source

    items = walk(roots([folder])[0], follow_outside=True)
    named = [item.path for item in items if isinstance(item, LogFile) and item.name.lower().endswith(model_suffixes())]
    models = sorted(path for path in named if recognize_model(Source(path)) is not None)
    if not models:
        raise NotFound(f"there is no model in {folder}", "name a model file, or record with capture.profile(model=...)")
    if len(models) > 1:
        raise NotFound(f"there are {len(models):,} models in {folder}", f"name one of them, such as {models[0]}")
    return models[0]


def subject_of(kind: Subject, path: str) -> object:
    """Return the subject of a view without a trace: a model, the run data or the reports below a folder."""
    if kind == "model":
        return model_at(path)
    if kind == "data":
        return run_data_below(path)
    reports = reports_below(path)
    if not reports:
        raise NotFound(f"there is no report of a measured model in {path}", "jobs write them: `visualprof submit`")
    return reports


def run_data_below(path: str) -> RunData:
    """Return the run data in a file, or in a folder and its subfolders, which are lines.

    Raises:
        NotFound: The folder has no run data.
    """
    from visualprof.reader.logdir.scan import LogFile, roots, walk
    from visualprof.reader.run_data.folders import DataFile, is_data_name
    from visualprof.reader.run_data.run import RunData

    items = walk(roots([path])[0], follow_outside=True)
    files = sorted(
        DataFile(item.folder, item.path) for item in items if isinstance(item, LogFile) and is_data_name(item.name)
    )
    if not files:
        raise NotFound(f"there is no event file or VisualDL log in {path}", "log scalars into this folder")
    data = RunData()
    data.update(files)
    return data


def reports_below(path: str) -> list[Report]:
    """Return the reports of measured models and servers in a file, or in a folder and its subfolders."""
    from visualprof.reader.logdir.scan import LogFile, roots, walk
    from visualprof.reader.results.report import find_result_folders, read_report
    from visualprof.reader.results.serving_benchmarks import read_serving_file, serving_reports

    files = [item for item in walk(roots([path])[0], follow_outside=True) if isinstance(item, LogFile)]
    measured = [
        report for folder, parts in find_result_folders(files).items() if (report := read_report(folder, parts))
    ]
    return [*measured, *serving_reports(result for file in files if (result := read_serving_file(file)))]


def has_only_serving_results(path: str) -> bool:
    """Return whether a file is the result of a load generator, or a folder has such files and no profile."""
    from visualprof.reader.foreign_files import is_serving_result
    from visualprof.reader.logdir.listing import scan_profiles
    from visualprof.reader.logdir.scan import LogFile, roots, walk
    from visualprof.reader.results.serving_benchmarks import may_be_serving_file
    from visualprof.reader.source import Source, SourceError

    def is_result(file: LogFile) -> bool:
        try:
            return may_be_serving_file(file.name) and is_serving_result(Source(file.path).head())
        except SourceError:
            return False

    if not Path(path).exists():
        return False
    items = walk(roots([path])[0], follow_outside=True)
    has_result = any(is_result(item) for item in items if isinstance(item, LogFile))
    return has_result and not (Path(path).is_dir() and scan_profiles([Path(path)]).runs)
