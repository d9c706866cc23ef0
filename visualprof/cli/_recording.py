"""The option --recording: the profile of the same process with which a memory snapshot is joined."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from visualprof.errors import BadParameter, NotFound

if TYPE_CHECKING:
    from visualprof.reader.trace import Trace

MAX_LISTED = 5  # names in an error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option --recording."""
    parser.add_argument(
        "--recording",
        default="",
        metavar="R",
        help="Profile of the same process to join with a memory snapshot: a file, or a file or worker in the folder of "
        "the snapshot (default: chosen by the names of the files).",
    )


def find_named(snapshot: Path, name: str) -> tuple[Path, ...]:
    """Return the file that the option names, or the files of the worker.

    Raises:
        NotFound: There is no such file.
    """
    from visualprof.reader.memory_snapshot.recordings import MAX_RECORDINGS, is_snapshot_name, relevant_names

    if Path(name).is_file():
        return (Path(name),)
    names = [other for other in relevant_names(sorted(os.listdir(snapshot.parent))) if not is_snapshot_name(other)]
    chosen = [other for other in names if other == name or other.startswith(f"{name}.")]
    if not chosen:
        hint = f"in the folder of the snapshot: {', '.join(names[:MAX_LISTED])}" if names else "name a file"
        raise NotFound(f"there is no recording {name}", hint)
    return tuple(snapshot.parent / other for other in chosen[:MAX_RECORDINGS])


def join_named(trace: Trace, recordings: Iterable[tuple[str, Trace]]) -> Trace:
    """Return a memory snapshot joined with these recordings, instead of those that the names of the files suggest.

    Args:
        trace: The snapshot.
        recordings: File names and traces.

    Raises:
        BadParameter: The trace is not a memory snapshot, or no recording is of the same process and time.
    """
    from visualprof.reader.memory_snapshot.origins import join_recordings, unjoined

    if trace.heap is None:
        raise BadParameter("--recording joins a profile with a memory snapshot", "name a memory snapshot as PATH")
    joined = join_recordings(unjoined(trace), recordings)
    if joined.heap is None or not len(joined.heap.origins):
        raise BadParameter(joined.meta.warnings[-1], "name another with --recording")
    return joined
