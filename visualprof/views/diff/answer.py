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

    part: kinds.Words
    base_ns: kinds.Durations
    new_ns: kinds.Durations
    delta_ns: kinds.Durations


class DiffPhases(Columns):
    """Steps of a server by phase, means of each by itself. device_ns: in which a device worked.

    status: added or removed (only one side has such steps), changed, same.
    """

    phase: kinds.Words
    base_steps: kinds.Counts
    new_steps: kinds.Counts
    base_requests: kinds.Counts
    new_requests: kinds.Counts
    base_tokens: kinds.Counts
    new_tokens: kinds.Counts
    base_ns: kinds.Durations
    new_ns: kinds.Durations
    delta_ns: kinds.Durations
    delta_ratio: kinds.Ratios
    base_device_ns: kinds.Durations
    new_device_ns: kinds.Durations
    status: kinds.Words
    significant: kinds.Flags


class DiffRows(Columns, kw_only=True):
    """What changed, the largest change first.

    part: of the step, in the overview. base_name, new_name: where one row has several names, or the sides differ.
    share_of_change: of the step's. status: added, removed, changed, same, or replaced: other names for the same work.
    """

    name: kinds.Names
    key: kinds.Texts
    part: kinds.Words | None = None
    base_name: kinds.Texts | None = None
    new_name: kinds.Texts | None = None
    base_calls: kinds.Counts
    new_calls: kinds.Counts
    base_ns: kinds.Durations
    new_ns: kinds.Durations
    delta_ns: kinds.Durations
    delta_ratio: kinds.Ratios
    share_of_change: kinds.Ratios
    status: kinds.Words
    significant: kinds.Flags


class DiffSizes(Columns):
    """Memory. what: peak_allocated or peak_reserved of a device, -1 the host; held_at_peak, allocated: by an operator.

    allocated: in a step.
    """

    name: kinds.Names
    what: kinds.Words
    device: kinds.Identifiers
    base_bytes: kinds.Sizes
    new_bytes: kinds.Sizes
    delta_bytes: kinds.Sizes
    delta_ratio: kinds.Ratios
    status: kinds.Words


class DiffPoints(Columns):
    """Measured models: each figure of each size. value: ns, or a rate; delta_ratio tells how they differ."""

    name: kinds.Words
    batch: kinds.Identifiers
    scenario: kinds.Words
    figure: kinds.Words
    base_value: kinds.Counts
    new_value: kinds.Counts
    delta_ratio: kinds.Ratios
    significant: kinds.Flags


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
