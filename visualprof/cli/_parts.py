"""What views of a whole run take of its workers, made side by side where it is not kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visualprof.errors import MissingData, VisualprofError

if TYPE_CHECKING:
    from visualprof.reader.trace import Trace

Asked = tuple[tuple[str, str], ...]  # views by name, and what their parts depend on


def parts(asked: Asked, files: Sequence[Path], opened: Callable[[Path], Trace]) -> dict[str, list[tuple[str, Any]]]:
    """Of each view the parts of all workers by their file's name; a worker of several that cannot be read is left out.

    Raises: VisualprofError: the only file cannot be read, or none of several.
    """
    fingerprints = {path: mine for path in files if (mine := _fingerprint(path, only=len(files) == 1))}
    known = {path: _kept(mine, asked) for path, mine in fingerprints.items()}
    new = {path: mine for path, mine in fingerprints.items() if known[path] is None}
    if new and len(files) == 1:
        known[files[0]] = _made(files[0], new[files[0]], asked, opened)
    elif new:
        _make_side_by_side(asked, new, known)
    if not any(known.values()):
        raise MissingData("none of the ranks can be read", "see the messages above")
    read = [(path.name, mine) for path, mine in known.items() if mine]
    return {view: [(name, mine[place]) for name, mine in read] for place, (view, _) in enumerate(asked)}


def _fingerprint(path: Path, only: bool) -> str:
    """Of a file's content; "" of one of several that cannot be read. Raises: VisualprofError: the only one cannot."""
    from visualprof.reader.captured.files import fingerprint

    try:
        return fingerprint(path)
    except VisualprofError as error:
        if only:
            raise
        _left_out(error)
        return ""


def _kept(fingerprint: str, asked: Asked) -> list[Any] | None:
    """The parts of a file; None where one of them is not kept."""
    from visualprof.reader.cache import Cache
    from visualprof.views import view
    from visualprof.views.answers.part_cache import kept_part

    found = [kept_part(Cache.default(), view(name), fingerprint, text) for name, text in asked]
    return None if None in found else found


def _made(path: Path, fingerprint: str, asked: Asked, opened: Callable[[Path], Trace]) -> list[Any]:
    from visualprof.reader.cache import Cache
    from visualprof.views import view
    from visualprof.views.answers.part_cache import part_of

    trace = cache(lambda: opened(path))
    return [part_of(Cache.default(), view(name), fingerprint, trace, text) for name, text in asked]


def _make_side_by_side(asked: Asked, files: dict[Path, str], known: dict[Path, list[Any] | None]) -> None:
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial
    from multiprocessing import get_context

    from visualprof.reader.processors import share_processors, usable_processors

    among = min(usable_processors(), len(files), 8)
    with ProcessPoolExecutor(among, get_context("spawn"), share_processors, (among,)) as pool:
        for path, found in zip(files, pool.map(partial(_read, asked=asked), files, files.values()), strict=True):
            if isinstance(found, VisualprofError):
                _left_out(found)
            else:
                known[path] = found


def _read(path: Path, fingerprint: str, asked: Asked) -> list[Any] | VisualprofError:
    """The parts of a file, or why it cannot be read."""
    from visualprof.reader.cache import open_trace

    try:
        return _made(path, fingerprint, asked, open_trace)
    except VisualprofError as error:
        return error


def _left_out(error: VisualprofError) -> None:
    print(f"visualprof: left out: {error}", file=sys.stderr)
