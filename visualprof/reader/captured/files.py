"""Which files are traces of captures, and to which recordings they belong.

vLLM writes `capture_traces/` into the folder of its recordings, TraceLens puts it beside that folder; SGLang writes
`bs_<batch>_rank<rank>.json.gz`, one file a batch size.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from visualprof.reader.digest import blake2b
from visualprof.reader.source import Source

FOLDER = "capture_traces"
MOST = 512  # files of a folder that are looked at
_TRACE = re.compile(r"\.json(\.gz)?$", re.IGNORECASE)
_NAMED = re.compile(r"^(bs_\d+_rank_?\d+|graph_capture_rank_?\d+)(?![a-z0-9]).*\.json(\.gz)?$", re.IGNORECASE)
_RANK = re.compile(r"rank_?(\d+)", re.IGNORECASE)


def belongs_to_others(path: str, root: str) -> bool:
    """Is it a trace of captures that is read with the recordings beside it? Not one that somebody opens by itself."""
    folder, name = os.path.split(path)
    if FOLDER in Path(os.path.relpath(folder, root)).parts:
        return bool(_TRACE.search(name))
    return path != root and bool(_NAMED.match(name)) and any(map(_is_recording, _names(folder)))


def captures_of(path: str | Path) -> list[Path]:
    """The nearest traces of captures beside a recording, those of its rank first; none for one of them."""
    folder, name = Path(path).parent, Path(path).name
    if folder.name == FOLDER or _NAMED.match(name):
        return []
    listed = [folder / other for other in _names(folder) if _NAMED.match(other)]
    for where in (folder / FOLDER, folder.parent / FOLDER):
        listed = listed or [where / other for other in _names(where) if _TRACE.search(other)]
    rank = _rank(name)
    return sorted(listed, key=lambda file: (_rank(file.name) != rank, file.name))[:MOST]


def fingerprint(path: str | Path) -> str:
    """Identity of a recording's content and of the captures that are read with it."""
    own = Source(path).fingerprint()
    captures = captures_of(path)
    if not captures:
        return own
    return blake2b("\n".join([own, *map(_state, captures)]).encode("utf-8", "replace"), digest_size=16).hexdigest()


def stamp(folder: str) -> int:
    """Differs when the captures that belong to the recordings of a folder may differ; 0 without any."""
    captures = captures_of(Path(folder) / "recording")
    if not captures:
        return 0
    states = "\n".join(map(_state, captures)).encode("utf-8", "replace")
    return int.from_bytes(blake2b(states, digest_size=6).digest(), "little") + 1


def _state(file: Path) -> str:
    try:
        status = file.stat()
    except OSError:  # gone since it was listed
        return f"{file.name}:"
    return f"{file.name}:{status.st_size}:{status.st_mtime_ns}"


def _names(folder: str | Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:  # there is none, or it may not be read
        return []


def _is_recording(name: str) -> bool:
    return bool(_TRACE.search(name)) and not _NAMED.match(name)


def _rank(name: str) -> str:
    found = _RANK.search(name)
    return found[1] if found else ""
