"""Convert logs of VisualDL to event files, which TensorBoard and other tools read.

Every value is converted, and the logs stay as they are. Rates of ROC curves are computed again from their counts,
because VisualDL writes wrong rates.

Example:
  visualprof convert-logs log/ -o runs/
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from visualprof.errors import BadParameter, NotFound

if TYPE_CHECKING:
    from visualprof.reader.run_data.event_file import EventFile

_STAMP = re.compile(r"vdlrecords\.(\d+)")
_MAX_PRINTED = 10
_BATCH_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("logdir", metavar="LOGDIR", help="Folder with logs of VisualDL, or one log.")
    parser.add_argument(
        "-o", "--out", required=True, metavar="DIR", help="Folder for the event files; created if missing."
    )


def run(args: argparse.Namespace) -> int:
    """Convert the logs; return 1 if a value could not be converted."""
    from visualprof.reader.logdir.scan import LogFile, roots, walk
    from visualprof.reader.run_data.event_file import EventFile
    from visualprof.reader.run_data.folders import is_data_name

    if not Path(args.logdir).exists():
        raise NotFound(f"there is no file or folder {args.logdir!r}")
    items = walk(roots([args.logdir])[0], follow_outside=True)
    files = sorted((item.folder, item.path) for item in items if isinstance(item, LogFile) and is_data_name(item.name))
    converted = 0
    failures: list[str] = []
    for folder, path in files:
        log = EventFile(path)
        log.update()
        if log.kind != "visualdl":
            continue
        target = _target(Path(args.out) / folder, log.name)
        if target.exists():
            raise BadParameter(f"{target} exists", "delete it, or choose another folder with -o")
        failures += [f"{path}: {text}" for text in _convert(log, target)]
        failures += [f"{path}: {damage.reason} at byte {damage.offset:,}" for damage in log.all_damages]
        print(target)
        converted += 1
    if not converted:
        raise NotFound(f"there is no log of VisualDL in {args.logdir}", "their names contain vdlrecords")
    for text in failures[:_MAX_PRINTED]:
        print(f"visualprof: not converted: {text}", file=sys.stderr)
    if len(failures) > _MAX_PRINTED:
        print(f"visualprof: not converted: {len(failures) - _MAX_PRINTED:,} more values", file=sys.stderr)
    return 1 if failures else 0


def _target(folder: Path, name: str) -> Path:
    """Return the event file of a log. Event files sort like their logs."""
    match = _STAMP.search(name)
    stamp = match[1] if match else "0"
    rest = re.sub(r"\W+", "-", name[match.end() :] if match else name).strip("-")
    return folder / f"events.out.tfevents.{stamp:0>10}.visualdl.{rest}"


def _convert(log: EventFile, target: Path) -> list[str]:
    """Write the event file of a log, and return a sentence per value that cannot be converted."""
    from itertools import chain

    from visualprof.capture.log.fields import record
    from visualprof.capture.log.messages import file_head
    from visualprof.cli._visualdl_values import sample_records, scalar_records

    failures: list[str] = []
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    times = [int(series.points.wall_ns[0]) for series in log.series.values() if series.has_points]
    head = record(file_head(max(min(times, default=0), 0) / 1e9))
    try:
        with part.open("wb", buffering=_BATCH_BYTES) as out:
            out.write(head)
            for data in chain(scalar_records(log), sample_records(log, target.parent, failures)):
                out.write(data)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return failures
