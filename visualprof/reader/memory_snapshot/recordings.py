"""Find the recordings of the process that wrote a memory snapshot, by the names of the files.

`visualprof.capture` writes `rank0_node7_4211.memory_snapshot.pickle` next to `rank0_node7_4211.step12.pt.trace.json`.
Other programs choose any name, such as `rank0_snapshot.pickle` or `snapshot.pickle`. The names only select candidates:
`memory_snapshot.origins` checks each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

MAX_RECORDINGS = 8  # per snapshot
_SNAPSHOT = re.compile(
    r"^(?P<process>.*?)(\.oom)?(?P<captured>\.memory_snapshot)?\.(pickle|pkl)(\.gz)?$", re.IGNORECASE
)
_RECORDING = re.compile(r"\.json(\.gz)?$", re.IGNORECASE)
_RANK = re.compile(r"(?<![a-z0-9])rank[-_]?(\d+)", re.IGNORECASE)


def is_snapshot_name(name: str) -> bool:
    """Return whether a file may be a memory snapshot."""
    return bool(_SNAPSHOT.match(name))


def relevant_names(names: Sequence[str]) -> list[str]:
    """Return the names in a folder on which `find_recordings` depends: few, even if it has thousands of pickles."""
    return [*filter(_RECORDING.search, names), *islice(filter(is_snapshot_name, names), 2)]


def find_snapshots(path: str | Path, names: Sequence[str]) -> list[str]:
    """Return the names of the snapshots that may be of the same process as a recording.

    Args:
        path: The recording.
        names: The names in its folder, sorted.
    """
    name = Path(path).name
    snapshots, relevant = list(filter(is_snapshot_name, names)), relevant_names(names)
    candidates = [other for other in snapshots if len(snapshots) == 1 or _may_belong(other, name)]
    return [
        other
        for other in candidates[:MAX_RECORDINGS]
        if any(file.name == name for file in find_recordings(Path(path).with_name(other), lambda _: relevant))
    ]


def _may_belong(snapshot: str, recording: str) -> bool:
    """Return whether a snapshot and a recording have the same process or the same rank in their names."""
    match, ranks = _SNAPSHOT.match(snapshot), [_RANK.search(name) for name in (snapshot, recording)]
    numbers = {int(rank[1]) if rank else None for rank in ranks}
    return bool(match and recording.startswith(f"{match['process']}.")) or (len(numbers) == 1 and None not in numbers)


def find_recordings(path: str | Path, list_folder: Callable[[str | Path], Sequence[str]]) -> list[Path]:
    """Return the recordings in the folder of a snapshot that may be of the same process.

    They have the name of the process and a dot in front. Otherwise they have the rank of the snapshot, or there is one
    recording next to one snapshot, both without a rank; but not if `visualprof.capture` named it after its process.
    """
    folder, name = Path(path).parent, Path(path).name
    match = _SNAPSHOT.match(name)
    if match is None:
        return []
    names = list_folder(folder)
    recordings = [other for other in names if _RECORDING.search(other)]
    chosen = [other for other in recordings if other.startswith(f"{match['process']}.")]
    rank = _RANK.search(name)
    if chosen or match["captured"]:
        return [folder / other for other in chosen[:MAX_RECORDINGS]]
    if rank:
        ranks = ((other, _RANK.search(other)) for other in recordings)
        chosen = [other for other, stated in ranks if stated and int(stated[1]) == int(rank[1])]
    elif len(recordings) == 1 and sum(map(is_snapshot_name, names)) == 1:
        chosen = [other for other in recordings if not _RANK.search(other)]
    return [folder / other for other in chosen[:MAX_RECORDINGS]]
