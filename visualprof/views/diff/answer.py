"""What a comparison answers. Times are per step, so that runs of different length compare; deltas are new less base."""

from __future__ import annotations

from typing import Literal

import msgspec

from visualprof.views.answers import kinds
from visualprof.views.answers.table import Answer, Columns, Table


class DiffRun(msgspec.Struct):
    """One of the two. version: of the framework, "" where the file does not say. steps: those that count."""

    path: str
    framework: kinds.Word
    version: str
    device: str
    steps: kinds.Count


class DiffStep(msgspec.Struct):
    """The mean step. low_ns, high_ns: 99 % interval of the change of a typical step, correlated steps allowed for.

    significant: null with fewer than 5 steps on a side. detectable_ratio: the smallest change that could be told from
    noise.
    """

    base_ns: kinds.Duration
    new_ns: kinds.Duration
    delta_ns: kinds.Duration
    delta_ratio: kinds.Ratio | None
    low_ns: kinds.Duration | None
    high_ns: kinds.Duration | None
    significant: bool | None
    detectable_ratio: kinds.Ratio | None


class DiffParts(Columns):
    """Parts of the step; the deltas add up to the step's."""

    part: kinds.WordColumn
    base_ns: kinds.DurationColumn
    new_ns: kinds.DurationColumn
    delta_ns: kinds.DurationColumn


class DiffPhases(Columns):
    """Steps of a server by phase, means of each by itself. device_ns: in which a device worked.

    status: added or removed (only one side has such steps), changed, same.
    """

    phase: kinds.WordColumn
    base_steps: kinds.CountColumn
    new_steps: kinds.CountColumn
    base_requests: kinds.CountColumn
    new_requests: kinds.CountColumn
    base_tokens: kinds.CountColumn
    new_tokens: kinds.CountColumn
    base_ns: kinds.DurationColumn
    new_ns: kinds.DurationColumn
    delta_ns: kinds.DurationColumn
    delta_ratio: kinds.RatioColumn
    base_device_ns: kinds.DurationColumn
    new_device_ns: kinds.DurationColumn
    status: kinds.WordColumn
    significant: kinds.FlagColumn


class DiffRows(Columns, kw_only=True):
    """What changed, the largest change first.

    part: of the step, in the overview. base_name, new_name: where one row has several names, or the sides differ.
    share_of_change: of the step's. status: added, removed, changed, same, or replaced: other names for the same work.
    """

    name: kinds.NameColumn
    key: kinds.TextColumn
    part: kinds.WordColumn | None = None
    base_name: kinds.TextColumn | None = None
    new_name: kinds.TextColumn | None = None
    base_calls: kinds.CountColumn
    new_calls: kinds.CountColumn
    base_ns: kinds.DurationColumn
    new_ns: kinds.DurationColumn
    delta_ns: kinds.DurationColumn
    delta_ratio: kinds.RatioColumn
    share_of_change: kinds.RatioColumn
    status: kinds.WordColumn
    significant: kinds.FlagColumn


class DiffSizes(Columns):
    """Memory. what: peak_allocated or peak_reserved of a device, -1 the host; held_at_peak, allocated: by an operator.

    allocated: in a step.
    """

    name: kinds.NameColumn
    what: kinds.WordColumn
    device: kinds.IdentifierColumn
    base_bytes: kinds.SizeColumn
    new_bytes: kinds.SizeColumn
    delta_bytes: kinds.SizeColumn
    delta_ratio: kinds.RatioColumn
    status: kinds.WordColumn


class DiffPoints(Columns):
    """Measured models: each figure of each size. value: ns, or a rate; delta_ratio tells how they differ."""

    name: kinds.WordColumn
    batch: kinds.IdentifierColumn
    scenario: kinds.WordColumn
    figure: kinds.WordColumn
    base_value: kinds.CountColumn
    new_value: kinds.CountColumn
    delta_ratio: kinds.RatioColumn
    significant: kinds.FlagColumn


class DiffNote(msgspec.Struct):
    """What makes the two not alike, or an answer less sure. base, new: what each has, where that is the point.

    ratio: of `drift` and `pace`, what all rows of the device, and of the host, share.
    """

    id: Literal[
        "same_file",
        "growing",
        "no_steps",
        "few_steps",
        "framework",
        "version",
        "device",
        "host",
        "batch",
        "inputs",
        "load",
        "precision",
        "host_busy",
        "drift",
        "pace",
        "outliers",
    ]
    base: str | None = None
    new: str | None = None
    ratio: kinds.Ratio | None = None


class DiffAnswer(Answer):
    """Two runs compared.

    not_explained_ns: of the step's change, what no row has; explained_ratio: the share that the rows have, null where
    the step did not change. detectable_ratio: the smallest change of a typical row that could be told from noise.
    phase: of a server's steps, that of those compared; phases: all of them. Both null of others.
    """

    view: kinds.Word
    base: DiffRun
    new: DiffRun
    step: DiffStep | None
    parts: Table[DiffParts]
    rows: Table[DiffRows]
    explained_ratio: kinds.Ratio | None
    not_explained_ns: kinds.Duration | None
    detectable_ratio: kinds.Ratio | None
    notes: list[DiffNote]
    memory: Table[DiffSizes] | None = None
    evaluation: Table[DiffPoints] | None = None
    phase: kinds.Word | None = None
    phases: Table[DiffPhases] | None = None
