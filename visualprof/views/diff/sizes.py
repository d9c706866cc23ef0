"""Comparison of the memory of two sides."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from visualprof.views.answers.table import Table, from_rows
from visualprof.views.diff.answer import DiffSizes
from visualprof.views.diff.confidence import MIN_CHANGE_RATIO
from visualprof.views.diff.memory import HeldColumns
from visualprof.views.diff.side import Side

OPERATOR_SIZES = ("held_at_peak", "allocated")  # an operator without a row has 0 bytes
Status = Literal["added", "removed", "replaced", "changed", "same"]


class _Key(NamedTuple):
    """Key of a row. The name is part of the key, since devices of one number may differ."""

    metric: str
    device: int
    name: str


def compare_sizes(base: Side, new: Side) -> Table[DiffSizes] | None:
    """Return the memory of both runs, peaks first, then the largest change; null if neither records memory.

    Devices are matched by number and name, or to each other if each run uses only one.
    """
    if base.memory is None and new.memory is None:
        return None
    held = [_sizes(side.memory) if side.memory else {} for side in (base, new)]
    devices = [_used_devices(sizes) for sizes in held]
    if len(devices[0]) == len(devices[1]) == 1 and devices[0] != devices[1]:
        held = _pair(held, *devices[0], *devices[1])
    recorded = base.memory is not None and new.memory is not None
    rows: list[tuple[Any, ...]] = []
    for key in dict.fromkeys((*held[0], *held[1])):
        before, after = held[0].get(key), held[1].get(key)
        row = (key.name, key.metric, key.device)
        if (before is None or after is None) and (key.metric not in OPERATOR_SIZES or not recorded):
            rows.append((*row, before, after, None, None, None))  # not recorded does not mean 0
            continue
        a, b = before or 0, after or 0
        large = abs(b - a) > MIN_CHANGE_RATIO * a
        rows.append((*row, a, b, b - a, b / a - 1 if a else None, row_status(False, a, b, large)))
    rows.sort(key=lambda row: (row[1] in OPERATOR_SIZES, -abs(row[5] or 0)))
    return Table(columns=from_rows(DiffSizes, rows))


def row_status(replaced: bool, before: float, after: float, large: bool) -> Status:
    """Return the status of a row, of which 0 means that a side does not have it."""
    if not before or not after:
        return "removed" if before else "added"
    return "replaced" if replaced else "changed" if large else "same"


def _sizes(memory: Table[HeldColumns]) -> dict[_Key, int]:
    """Return the bytes by row."""
    columns = memory.columns
    rows = zip(columns.what, columns.device, columns.name, columns.bytes, strict=True)
    return {_Key(metric, int(device), name): int(size) for metric, device, name, size in rows}


def _used_devices(sizes: dict[_Key, int]) -> dict[int, str]:
    """Return the names of the devices by number, without the host and without devices that hold no memory."""
    return {
        key.device: key.name
        for key, size in sizes.items()
        if key.metric not in OPERATOR_SIZES and key.device >= 0 and size > 0
    }


def _pair(held: list[dict[_Key, int]], base: int, new: int) -> list[dict[_Key, int]]:
    """Return the sizes with the same keys for a device of the base run and a device of the new run.

    The keys have the number of the new device. The names of both devices are in the name of their peaks.
    """
    names = [_device_name(sizes, device) for sizes, device in zip(held, (base, new), strict=True)]
    return [
        {
            _Key(key.metric, new, key.name if key.metric in OPERATOR_SIZES else " -> ".join(names))
            if key.device == device
            else key: size
            for key, size in sizes.items()
        }
        for sizes, device in zip(held, (base, new), strict=True)
    ]


def _device_name(sizes: dict[_Key, int], device: int) -> str:
    """Return the name of a device with its number."""
    name, number = _used_devices(sizes)[device], f"device {device}"
    return name if name == number else f"{name} ({number})"
