"""Files next to a recording of torch_npu: rank, process groups, and the files that are not separate recordings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from visualprof.messages import msg
from visualprof.reader.ascend.names import group_hash
from visualprof.reader.chrome.values import Json, integer, json_list, json_object, text
from visualprof.reader.patterns import pattern
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.process_group import ProcessGroup, encode_ranks

OUTPUT = "ASCEND_PROFILER_OUTPUT"
WORKER_FOLDER = pattern(r"^(?P<worker>.+?)(?:_(?P<stamp>\d{14,17}))?_ascend_(?:pt|ms)$")
DATABASE = pattern(r"^ascend_(?:pytorch|mindspore)_profiler(?:_\d+)?\.db$")
_ATTACHED = pattern(
    r"^(?:profiler_info(?:_\d+)?\.json|profiler_metadata\.json|communication(?:_matrix)?\.json|analysis\.db"
    r"|communication_analyzer\.db|cluster_\w+\.(?:json|db|csv)|communication_group\.json)$"
)
_TIMELINE = pattern(r"^trace_view\.json(?:\.gz)?$")
_MAX_FILE_BYTES = 64 << 20
_MAX_GROUPS = 4096


class RecordingFacts(msgspec.Struct):
    """Rank and process groups that the folder of a recording states.

    Attributes:
        rank: Global rank, -1 if unknown.
        world_size: Number of ranks, -1 if unknown.
        groups: Process groups.
        group_of_hash: Name of a group by its hash, which the communication files use instead of the name.
    """

    rank: int = -1
    world_size: int = -1
    groups: tuple[ProcessGroup, ...] = ()
    group_of_hash: dict[str, str] = {}


def read_facts(path: Path, builder: TraceBuilder) -> RecordingFacts:
    """Return the facts in the folder of a recording; damaged files are left out, with a warning.

    Args:
        path: The recording's own file.
        builder: Gets the warnings.
    """
    facts = RecordingFacts()
    folder = path.parent.parent if path.parent.name == OUTPUT else path.parent
    for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
        info = re.fullmatch(r"profiler_info(?:_(\d{1,7}))?\.json", name)
        if info:
            rank = integer(load_object(folder / name, builder).get("rank_id"))
            rank = rank if rank is not None else int(info[1]) if info[1] else -1
            facts.rank = rank if rank >= 0 else facts.rank
    metadata = load_object(folder / "profiler_metadata.json", builder)
    size = integer(json_object(metadata.get("distributed_args")).get("world_size"))
    facts.world_size = size if size is not None and size > 0 else -1
    facts.groups = tuple(_groups(json_object(metadata.get("parallel_group_info"))))
    facts.group_of_hash = {group_hash(group.name): group.name for group in facts.groups}
    return facts


def is_part_of_recording(path: str) -> bool:
    """Return whether a file belongs to an Ascend recording but is not the file that visualprof opens.

    Such files are metadata, derived files, raw data, and a text timeline next to a database.
    """
    file = Path(path)
    folder = file.parent
    if _is_below_recording(folder.parts):
        return True
    if folder.name == "cluster_analysis_output":
        return True
    if folder.name != OUTPUT and not WORKER_FOLDER.match(folder.name):
        return False
    if _TIMELINE.match(file.name):
        return any(DATABASE.match(name) for name in _names(folder))
    return bool(_ATTACHED.match(file.name))


def _is_below_recording(folders: tuple[str, ...]) -> bool:
    """Return whether a folder holds raw data (`PROF_*`, `FRAMEWORK`) of an exported recording."""
    for i, name in enumerate(folders[:-1]):
        if WORKER_FOLDER.match(name) and (folders[i + 1].startswith("PROF_") or folders[i + 1] == "FRAMEWORK"):
            return os.path.isdir(os.path.join(*folders[: i + 1], OUTPUT))
    return False


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def load_object(path: Path, builder: TraceBuilder) -> Json:
    """Return the object in a JSON file, empty if there is no such file."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_FILE_BYTES:
            return {}
        return json_object(msgspec.json.decode(path.read_bytes()))
    except (OSError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        builder.warn(msg("ascend.damaged_file", f"{path.name} cannot be read and was left out ({error})"))
        return {}


def _groups(info: Json) -> Iterator[ProcessGroup]:
    for name, entry in list(info.items())[:_MAX_GROUPS]:
        ranks = [integer(rank) for rank in json_list(json_object(entry).get("global_ranks"))]
        runs = encode_ranks(-1 if rank is None else rank for rank in ranks)
        yield ProcessGroup(str(name), text(json_object(entry).get("group_name")), runs)
