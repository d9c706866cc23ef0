"""Which files are traces of captures, and to which recordings they belong.

vLLM writes `capture_traces/` into the folder of its recordings, TraceLens puts it beside that folder; SGLang writes
`bs_<batch>_rank<rank>.json.gz`, one file a batch size. TraceLens adds a list of them, which is no trace.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from visualprof.reader.digest import blake2b
from visualprof.reader.source import Source

FOLDER = "capture_traces"
MOST = 512  # files of a folder that are looked at
_REST_NS = 2 * 10**9  # a folder that changed later may change again and look the same
_JSON = re.compile(r"\.json(\.gz)?$", re.IGNORECASE)
_TRACE = re.compile(r"^(?!execution_details\.json$).*\.json(\.gz)?$", re.IGNORECASE)
_NAMED = re.compile(r"^(bs_\d+_rank_?\d+|graph_capture_rank_?\d+)(?![a-z0-9]).*\.json(\.gz)?$", re.IGNORECASE)
_RANKS = (re.compile(r"rank_?(\d+)", re.IGNORECASE), re.compile(r"-TP-(\d+)"))  # SGLang's recordings have the latter

Names = Callable[[str | Path], list[str]]  # what is in a folder, sorted; nothing where there is none


def _names(folder: str | Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:  # there is none, or it may not be read
        return []


def belongs_to_others(path: str, root: str, names: Names = _names) -> bool:
    """Is it a trace of captures that is read with the recordings beside it? Not one that somebody opens by itself."""
    folder, name = os.path.split(path)
    if FOLDER in Path(os.path.relpath(folder, root)).parts:
        return bool(_JSON.search(name))
    return path != root and bool(_NAMED.match(name)) and any(map(_is_recording, names(folder)))


def captures_of(path: str | Path, names: Names | None = None) -> list[Path]:
    """The nearest traces of captures beside a recording, those of its rank first; none for one of them."""
    folder, name = Path(path).parent, Path(path).name
    if folder.name == FOLDER or _NAMED.match(name):
        return []
    changed = () if names else tuple(map(_changed_ns, (folder, folder / FOLDER, folder.parent / FOLDER)))
    at_rest = bool(changed) and time.time_ns() - max(changed) > _REST_NS
    listed = _kept_beside(folder, changed) if at_rest else _beside(folder, names or _names)
    rank = _rank(name)
    return sorted(listed, key=lambda file: (_rank(file.name) != rank, file.name))[:MOST]


def _beside(folder: Path, names: Names) -> list[Path]:
    """The nearest traces of captures of a folder's recordings."""
    listed = [folder / other for other in names(folder) if _NAMED.match(other)]
    for where in (folder / FOLDER, folder.parent / FOLDER):
        listed = listed or [where / other for other in names(where) if _TRACE.search(other)]
    return listed


@lru_cache(maxsize=64)
def _kept_beside(folder: Path, changed: tuple[int, ...]) -> list[Path]:
    """The same while no folder changes: of a thousand ranks in one folder each asks."""
    return _beside(folder, _names)


def _changed_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def fingerprint(path: str | Path) -> str:
    """Identity of a recording's content and of the captures that are read with it."""
    own = Source(path).fingerprint()
    captures = captures_of(path)
    if not captures:
        return own
    return blake2b("\n".join([own, *map(_state, captures)]).encode("utf-8", "replace"), digest_size=16).hexdigest()


def stamp(folder: str) -> int:
    """Differs when the captures that belong to the recordings of a folder may differ; 0 without any."""
    return stamp_of([_state(capture) for capture in captures_of(Path(folder) / "recording")])


def stamp_of(states: Sequence[str]) -> int:
    """Differs when states differ; 0 without any."""
    if not states:
        return 0
    return int.from_bytes(blake2b("\n".join(states).encode("utf-8", "replace"), digest_size=6).digest(), "little") + 1


def _state(file: Path) -> str:
    try:
        status = file.stat()
    except OSError:  # gone since it was listed
        return f"{file.name}:"
    return f"{file.name}:{status.st_size}:{status.st_mtime_ns}"


def _is_recording(name: str) -> bool:
    return bool(_TRACE.search(name)) and not _NAMED.match(name)


def _rank(name: str) -> str:
    found = next(filter(None, (rank.search(name) for rank in _RANKS)), None)
    return found[1] if found else ""
