"""Compute the per-worker parts of whole-run views in parallel, unless they are cached."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visualprof.errors import MissingData, VisualprofError

if TYPE_CHECKING:
    from visualprof.reader.trace import Trace

Asked = tuple[tuple[str, str], ...]  # (view, key of its parts)


def parts(asked: Asked, files: Sequence[Path], opened: Callable[[Path], Trace]) -> dict[str, list[tuple[str, Any]]]:
    """Return, per view, the parts of all workers by file name.

    If there are several workers, a worker whose file cannot be read is skipped.

    Raises:
        VisualprofError: The only file cannot be read, or none of several can.
    """
    fingerprints = {path: fingerprint for path in files if (fingerprint := _fingerprint(path, only=len(files) == 1))}
    cached = {path: _cached_parts(fingerprint, asked) for path, fingerprint in fingerprints.items()}
    new = {path: fingerprint for path, fingerprint in fingerprints.items() if cached[path] is None}
    if new and len(files) == 1:
        cached[files[0]] = _compute_parts(files[0], new[files[0]], asked, opened)
    elif new:
        _make_side_by_side(asked, new, cached)
    if not any(cached.values()):
        raise MissingData("none of the ranks can be read", "see the messages above")
    read = [(path.name, values) for path, values in cached.items() if values]
    return {view: [(name, values[place]) for name, values in read] for place, (view, _) in enumerate(asked)}


def _fingerprint(path: Path, only: bool) -> str:
    """Return the fingerprint of a file's content, "" for one of several files if it cannot be read.

    Raises:
        VisualprofError: The only file cannot be read.
    """
    from visualprof.reader.graph_capture.files import recording_fingerprint

    try:
        return recording_fingerprint(path)
    except VisualprofError as error:
        if only:
            raise
        _left_out(error)
        return ""


def _cached_parts(fingerprint: str, asked: Asked) -> list[Any] | None:
    """Return the cached parts of a file, or None if one is not cached."""
    from visualprof.reader.cache import Cache
    from visualprof.views import run_view
    from visualprof.views.answers.part_cache import load_part

    values = [load_part(Cache.default(), run_view(name), fingerprint, text) for name, text in asked]
    return None if None in values else values


def _compute_parts(path: Path, fingerprint: str, asked: Asked, opened: Callable[[Path], Trace]) -> list[Any]:
    from visualprof.reader.cache import Cache
    from visualprof.views import run_view
    from visualprof.views.answers.part_cache import load_or_compute_part

    trace = cache(lambda: opened(path))
    return [load_or_compute_part(Cache.default(), run_view(name), fingerprint, trace, text) for name, text in asked]


def _make_side_by_side(asked: Asked, files: dict[Path, str], cached: dict[Path, list[Any] | None]) -> None:
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial
    from multiprocessing import get_context

    from visualprof.reader.processors import share_processors, usable_processors

    among = min(usable_processors(), len(files), 8)
    with ProcessPoolExecutor(among, get_context("spawn"), share_processors, (among,)) as pool:
        for path, values in zip(files, pool.map(partial(_read, asked=asked), files, files.values()), strict=True):
            if isinstance(values, VisualprofError):
                _left_out(values)
            else:
                cached[path] = values


def _read(path: Path, fingerprint: str, asked: Asked) -> list[Any] | VisualprofError:
    """Return the parts of a file, or the error that prevents reading it."""
    from visualprof.reader.cache import open_trace

    try:
        return _compute_parts(path, fingerprint, asked, open_trace)
    except VisualprofError as error:
        return error


def _left_out(error: VisualprofError) -> None:
    print(f"visualprof: left out: {error}", file=sys.stderr)
