"""The matrix of transfers between ranks: `communication_matrix.json`, or the table CommAnalyzerMatrix of `analysis.db`.

Ranks are numbers within a group, and a group is the hash of its name. Sizes are in MB of 10^6 bytes and times in ms.
With the total of an operation, the matrix repeats its fastest and slowest calls (`-top1`, `-middle`, `-bottom1`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from visualprof.errors import SourceError
from visualprof.messages import msg
from visualprof.reader.ascend.folder import RecordingFacts, load_object
from visualprof.reader.ascend.names import collective_parts
from visualprof.reader.chrome.values import Json, json_object, number, text
from visualprof.reader.source import Source
from visualprof.reader.sqlite_file import Tables, open_database
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.process_group import decode_ranks
from visualprof.reader.trace.rank_transfer import RankTransfer

_JSON = "communication_matrix.json"
_DATABASES = ("analysis.db", "communication_analyzer.db")
_TABLE = "CommAnalyzerMatrix"
_TOTAL = "-total"
_MAX_ROWS = 1 << 20
_MAX_VALUE = 2.0**40  # MB or ms; larger values are damaged


class _Row(NamedTuple):
    """A cell of the matrix: operation, hash of the group, both ranks in the group, type of the link, MB and ms."""

    operation: str
    group: str
    source: str
    destination: str
    link: str
    megabytes: float
    milliseconds: float


def read_transfers(folder: Path, facts: RecordingFacts, builder: TraceBuilder) -> tuple[RankTransfer, ...]:
    """Return the transfers between ranks, summed over the steps; empty if the folder has no matrix.

    Args:
        folder: The folder with the exported files.
        facts: Facts of the recording.
        builder: Gets the warnings about damaged files.
    """
    sums: dict[tuple[str, str, str, int, int], tuple[float, float]] = {}
    for row in _json_rows(folder, builder) or _database_rows(folder, builder):
        operation = _operation(row.operation)
        is_rank = row.source.isdecimal() and row.destination.isdecimal() and len(row.source + row.destination) < 16
        if not (operation and is_rank and 0 < row.megabytes < _MAX_VALUE and 0 <= row.milliseconds < _MAX_VALUE):
            continue
        key = operation, row.group, row.link, int(row.source), int(row.destination)
        megabytes, milliseconds = sums.get(key, (0.0, 0.0))
        sums[key] = megabytes + row.megabytes, milliseconds + row.milliseconds
    members: dict[str, list[int]] = {group.name: decode_ranks(group.runs).tolist() for group in facts.groups}
    return tuple(
        RankTransfer(
            operation=operation,
            group=(name := facts.group_of_hash.get(group, group)),
            link=link,
            group_source=source,
            group_destination=destination,
            source=_global_rank(members.get(name, ()), source),
            destination=_global_rank(members.get(name, ()), destination),
            bytes=round(megabytes * 1e6),
            link_ns=round(milliseconds * 1e6),
        )
        for (operation, group, link, source, destination), (megabytes, milliseconds) in sums.items()
    )


def _global_rank(members: Sequence[int], rank: int) -> int:
    return members[rank] if rank < len(members) else -1


def _operation(name: str) -> str:
    """Return the operation of a total or of a single call; "" for the fastest and slowest calls of an operation."""
    if name.endswith(_TOTAL):
        return name.removesuffix(_TOTAL)
    return collective_parts(name)[0].lower()


def _json_rows(folder: Path, builder: TraceBuilder) -> list[_Row]:
    return list(islice(_matrix_rows(load_object(folder / _JSON, builder)), _MAX_ROWS))


def _matrix_rows(steps: Json) -> Iterator[_Row]:
    """Yield the cells of the matrix of each step, of messages and of collectives."""
    for step in steps.values():
        for calls in json_object(step).values():
            for key, pairs in json_object(calls).items():
                operation, _, group = key.partition("@")
                for pair, values in json_object(pairs).items():
                    source, _, destination = pair.partition("-")
                    cell = json_object(values)
                    sizes = (number(cell.get(name)) for name in ("Transit Size(MB)", "Transit Time(ms)"))
                    megabytes, milliseconds = (-1.0 if size is None else size for size in sizes)
                    link = text(cell.get("Transport Type"))
                    yield _Row(
                        operation, group, source, destination, link, megabytes=megabytes, milliseconds=milliseconds
                    )


def _database_rows(folder: Path, builder: TraceBuilder) -> list[_Row]:
    import sqlite3

    path = next((folder / name for name in _DATABASES if (folder / name).is_file()), None)
    if path is None:
        return []
    try:
        with open_database(Source(path)) as database:
            tables = Tables(database)
            condition = f"LIMIT {_MAX_ROWS}"
            words = ("hccl_op_name", "group_name", "src_rank", "dst_rank", "transport_type")
            texts = [tables.strings(_TABLE, name, condition) for name in words]
            sizes = [tables.floats(_TABLE, name, condition) for name in ("transit_size", "transit_time")]
    except (sqlite3.DatabaseError, SourceError) as error:
        builder.warn(msg("ascend.damaged_file", f"{path.name} cannot be read and was left out ({error})"))
        return []
    numbers = [np.nan_to_num(values, nan=-1.0).tolist() for values in sizes]
    return [_Row(*row) for row in zip(*texts, *numbers, strict=False)]
