"""Load a run as one side of a comparison."""

from __future__ import annotations

from typing import Any

from visualprof.cli._worker_files import file_of, files_of
from visualprof.cli.view import answer_of, without_work
from visualprof.reader.graph_capture.files import recording_fingerprint as fingerprint_of
from visualprof.views.diff.compare import Named
from visualprof.views.diff.side import SIDE, SideParams


def side_of(path: str, worker: str, params: SideParams, step_range: str = "") -> Named:
    """Return one side of a comparison, computed or cached by an earlier process.

    Args:
        path: The file, or the folder of the run.
        worker: Worker to read, "" for the first.
        params: Parameters of the side.
        step_range: Pattern of the ranges that are steps, "" for the file's own steps.

    Raises:
        MissingData: The run records no work.
        VisualprofError: The run cannot be opened.
    """
    file = file_of(files_of(path, step_range), worker, "", path)
    side: Any = answer_of(SIDE, params, file)
    if side is None:
        raise without_work(file, "compared")
    return Named(path, side, fingerprint_of(file.path) + file.rank)
