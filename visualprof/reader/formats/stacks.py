"""Collapsed stacks: one line per stack, frames joined by `;`, a space, and the stack's value.

`torch.profiler.profile.export_stacks` writes the time of operators in microseconds, `py-spy record --format raw` and
scripts for perf write numbers of samples. A file says neither, so a warning explains how the values are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from visualprof.errors import FormatError
from visualprof.messages import msg
from visualprof.reader.patterns import pattern
from visualprof.reader.registry import Format
from visualprof.reader.source import Source
from visualprof.reader.trace import Category, TrackKind
from visualprof.reader.trace.builder import TraceBuilder

MAX_BYTES = 1 << 28
_LINE = re.compile(rb"(?P<frames>[^;\r\n]+(?:;[^;\r\n]+)*) (?P<value>\d{1,18})\r?")
_MIN_LINES = 2
_MIN_LONG_STACK = 4  # frames in a first line of over 512 bytes
_NEVER_IN_STACKS = b'\x00{}="'
_OPERATOR = pattern(r"^(?:\w+::[\w.]+|\[memory\])$")
_TORCH_FRAME = pattern(r"^\S.*\(\d+\): \S+")  # `train.py(10): step`
_US = 1000


class _Frame(NamedTuple):
    """A frame with the values of the stacks that contain it: consecutive lines with the same frames share it."""

    name: str
    start: int
    end: int


def begins(first: bytes) -> bool:
    """Return whether the content may be stacks: `;` joins frames, and the first line, if complete, ends in a number."""
    line, newline, _ = first.partition(b"\n")
    if newline:
        return b";" in line and _LINE.fullmatch(line) is not None
    return line.count(b";") >= _MIN_LONG_STACK and not any(byte in line for byte in _NEVER_IN_STACKS)


def sniff(head: bytes) -> bool:
    """Return whether the first lines are stacks with values, and the first has several frames."""
    lines = head.split(b"\n")[:-1]
    return len(lines) >= _MIN_LINES and b";" in lines[0] and all(map(_LINE.fullmatch, lines))


def read(source: Source, builder: TraceBuilder) -> None:
    """Add the frames of all stacks, one stack after another, as calls that contain each other."""
    hint = msg("formats.stacks_fewer", "record for a shorter time")
    text = source.read_all(MAX_BYTES, msg("formats.collapsed_stacks", "a file of collapsed stacks"), hint)
    stacks: list[tuple[list[str], int]] = []
    damaged = 0
    for line in text.split(b"\n"):
        match = _LINE.fullmatch(line)
        if match:
            stacks.append((match["frames"].decode("utf-8", "replace").split(";"), int(match["value"])))
        else:
            damaged += bool(line.strip())
    if not stacks:
        raise FormatError(
            msg("formats.stacks_without_values", f"{source.name}: no line has a stack and a value"),
            msg("formats.check_whole_file", "check that the file is complete"),
        )
    if damaged:
        builder.warn(msg("formats.stacks_lines_left_out", f"{damaged:,} lines are not stacks and were left out"))
    is_torch = any(_TORCH_FRAME.match(frames[0]) for frames, _ in stacks)
    if is_torch:
        builder.warn(
            msg("formats.stacks_in_us", "the file has no unit: values are shown as microseconds, as torch writes")
        )
    else:
        builder.warn(msg("formats.stacks_of_samples", "the file has no unit: each sample is shown as one microsecond"))
    _add(builder, list(_frames(stacks)))
    builder.describe(framework="pytorch" if is_torch else "stacks", producer="collapsed stacks")


def _add(builder: TraceBuilder, frames: list[_Frame]) -> None:
    """Add frames as events of one thread."""
    start, end = (np.array([getattr(frame, side) for frame in frames], np.int64) * _US for side in ("start", "end"))
    names = [frame.name for frame in frames]
    category = [Category.OP if _OPERATOR.match(name) else Category.PYTHON for name in names]
    builder.events(
        ts=start,
        dur=end - start,
        name=builder.strings(names),
        category=np.array(category, np.int64),
        track=builder.track(TrackKind.THREAD, "stacks"),
        row=np.arange(len(frames)),
    )


def _frames(stacks: list[tuple[list[str], int]]) -> Iterator[_Frame]:
    """Yield the frames of stacks in order; a frame continues while consecutive stacks have the same callers."""
    open_frames: list[tuple[str, int]] = []
    now = 0
    for frames, value in sorted(stacks, key=lambda stack: stack[0]):
        shared = 0
        while shared < min(len(open_frames), len(frames)) and open_frames[shared][0] == frames[shared]:
            shared += 1
        while len(open_frames) > shared:
            name, start = open_frames.pop()
            yield _Frame(name, start, now)
        open_frames += [(name, now) for name in frames[shared:]]
        now += value
    while open_frames:
        name, start = open_frames.pop()
        yield _Frame(name, start, now)


FORMAT = Format("stacks", "collapsed stacks", 95, sniff, read, start=begins, suffixes=(".folded", ".collapsed"))
