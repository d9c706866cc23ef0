"""A run as one of the two of a comparison."""

from __future__ import annotations

from typing import Any

from visualprof.cli.view import answer_of, file_of, files_of
from visualprof.errors import MissingData
from visualprof.reader.captured.files import fingerprint as fingerprint_of
from visualprof.views.diff.compare import Named
from visualprof.views.diff.side import SIDE, SideParams


def side_of(path: str, worker: str, params: SideParams) -> Named:
    """Worked out, or kept by an earlier process.

    Raises: MissingData: it records no work. What opening it raises.
    """
    file = file_of(files_of(path), worker, "", path)
    side: Any = answer_of(SIDE, params, file)
    if side is None:
        raise MissingData(f"{file.path.name} has nothing that could be compared", "it records no work")
    return Named(path, side, fingerprint_of(file.path))
