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
    known = {path: _kept(path, asked) for path in files}
    new = [path for path in files if known[path] is None]
    if new and len(files) == 1:
        known[new[0]] = _made(new[0], asked, opened)
    elif new:
        _make_side_by_side(asked, new, known)
    if not any(known.values()):
        raise MissingData("none of the ranks can be read", "see the messages above")
    read = [(path.name, mine) for path, mine in known.items() if mine]
    return {view: [(name, mine[place]) for name, mine in read] for place, (view, _) in enumerate(asked)}


def _kept(path: Path, asked: Asked) -> list[Any] | None:
    """The parts of a file; None where one of them is not kept, or it cannot be read."""
    from visualprof.reader.cache import Cache
    from visualprof.reader.captured.files import fingerprint
    from visualprof.views import view
    from visualprof.views.answers.part_cache import kept_part

    try:
        mine = fingerprint(path)
    except VisualprofError:
        return None
    found = [kept_part(Cache.default(), view(name), mine, text) for name, text in asked]
    return None if None in found else found


def _made(path: Path, asked: Asked, opened: Callable[[Path], Trace]) -> list[Any]:
    from visualprof.reader.cache import Cache
    from visualprof.reader.captured.files import fingerprint
    from visualprof.views import view
    from visualprof.views.answers.part_cache import part_of

    mine, trace = fingerprint(path), cache(lambda: opened(path))
    return [part_of(Cache.default(), view(name), mine, trace, text) for name, text in asked]


def _make_side_by_side(asked: Asked, files: Sequence[Path], known: dict[Path, list[Any] | None]) -> None:
    from concurrent.futures import ProcessPoolExecutor
    from functools import partial
    from multiprocessing import get_context

    from visualprof.reader.processors import share, usable

    among = min(usable(), len(files), 8)
    with ProcessPoolExecutor(among, get_context("spawn"), share, (among,)) as pool:
        for path, found in zip(files, pool.map(partial(_read, asked=asked), files), strict=True):
            if isinstance(found, str):
                print(f"visualprof: left out: {found}", file=sys.stderr)
            else:
                known[path] = found


def _read(path: Path, asked: Asked) -> list[Any] | str:
    """The parts of a file; the error's text when it cannot be read."""
    from visualprof.reader.cache import open_trace

    try:
        return _made(path, asked, open_trace)
    except VisualprofError as error:
        return str(error)
