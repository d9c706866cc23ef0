"""Answer of a comparison. Times are per step, so runs of different length compare; deltas are new minus base."""

from __future__ import annotations

from typing import Literal

import msgspec

from visualprof.views.answers import kinds
from visualprof.views.answers.table import Answer, Columns, Table


class DiffRun(msgspec.Struct):
    """One of the two runs.

    Attributes:
        version: Version of the framework; "" if the file does not say.
        steps: Number of compared steps.
    """

    path: str
    framework: kinds.Word
    version: str
    device: str
    steps: kinds.Count


class DiffStep(msgspec.Struct):
    """The change of the step time, and of the mean step, which the parts and rows add up to.

    Attributes:
        base_median_ns: Step time of the base run: the median of its typical steps.
        new_median_ns: Step time of the new run.
        median_delta_ns: Change of the step time.
        median_delta_ratio: Relative change of the step time.
        base_ns: Mean step of the base run.
        new_ns: Mean step of the new run.
        delta_ns: Change of the mean step.
        delta_ratio: Relative change of the mean step.
        low_ns: Lower end of the 99 % interval of the change of a typical step, allowing for correlated steps.
        high_ns: Upper end of that interval.
        significant: null with fewer than 5 steps on a side.
        detectable_ratio: The smallest change that can be distinguished from noise.
        attributed_to_load: Whether the change is not significant only because all rows of the host or the device
            changed alike.
    """

    base_median_ns: kinds.Duration
    new_median_ns: kinds.Duration
    median_delta_ns: kinds.Duration
    median_delta_ratio: kinds.Ratio | None
    base_ns: kinds.Duration
    new_ns: kinds.Duration
    delta_ns: kinds.Duration
    delta_ratio: kinds.Ratio | None
    low_ns: kinds.Duration | None
    high_ns: kinds.Duration | None
    significant: bool | None
    detectable_ratio: kinds.Ratio | None
    attributed_to_load: bool = False


class DiffCause(msgspec.Struct, kw_only=True):
    """A row that explains a large share of a significant change of the step.

    Attributes:
        part: Part of the step, in the overview.
        base_share_ratio: Share of the mean step of the base run.
        new_share_ratio: Share of the mean step of the new run.
        share_of_change: Share of the change of the step; above 1 if other rows changed in the other direction.
        low_ns: Lower end of the 95 % interval of the change.
        high_ns: Upper end of that interval.
        certainty: `significant`, or `likely` if the row alone does not exceed noise.
    """

    name: str
    part: kinds.Word | None
    base_ns: kinds.Duration
    new_ns: kinds.Duration
    delta_ns: kinds.Duration
    delta_ratio: kinds.Ratio | None
    base_share_ratio: kinds.Ratio
    new_share_ratio: kinds.Ratio
    share_of_change: kinds.Ratio
    low_ns: kinds.Duration
    high_ns: kinds.Duration
    certainty: Literal["significant", "likely"]


class DiffParts(Columns):
    """Parts of the step; their deltas add up to that of the step.

    Attributes:
        base_share_ratio: Share of the mean step.
        new_share_ratio: Share of the mean step.
        significant: Whether the change exceeds noise; null with fewer than 5 steps on a side.
    """

    part: kinds.WordColumn
    base_ns: kinds.DurationColumn
    base_share_ratio: kinds.RatioColumn
    new_ns: kinds.DurationColumn
    new_share_ratio: kinds.RatioColumn
    delta_ns: kinds.DurationColumn
    significant: kinds.FlagColumn


class DiffPhases(Columns):
    """Steps of a server by phase, with means per phase.

    Attributes:
        base_device_ns: Time with device work.
        new_device_ns: Time with device work.
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
    """Rows, the largest change first.

    Attributes:
        part: Part of the step, in the overview.
        base_name: Name in the base run, if a row has several names or the sides differ.
        new_name: Name in the new run, likewise.
        base_share_ratio: Share of the mean step. Rows of kernels and operators may overlap.
        new_share_ratio: Share of the mean step.
        share_of_change: Share of the change of the step.
        status: added, removed, changed, same, or replaced (other names for the same work).
    """

    name: kinds.NameColumn
    key: kinds.TextColumn
    part: kinds.WordColumn | None = None
    base_name: kinds.TextColumn | None = None
    new_name: kinds.TextColumn | None = None
    base_calls: kinds.CountColumn
    new_calls: kinds.CountColumn
    base_ns: kinds.DurationColumn
    base_share_ratio: kinds.RatioColumn
    new_ns: kinds.DurationColumn
    new_share_ratio: kinds.RatioColumn
    delta_ns: kinds.DurationColumn
    delta_ratio: kinds.RatioColumn
    share_of_change: kinds.RatioColumn
    status: kinds.WordColumn
    significant: kinds.FlagColumn


class DiffSizes(Columns):
    """Memory.

    Attributes:
        name: Operator or device; both devices, if the only device that each run uses differs.
        what: peak_allocated or peak_reserved of a device, held_at_peak or allocated (per step) by an operator.
        device: Number of the device (of the new run, if they differ); -1 for the host.
    """

    name: kinds.NameColumn
    what: kinds.WordColumn
    device: kinds.IdentifierColumn
    base_bytes: kinds.SizeColumn
    new_bytes: kinds.SizeColumn
    delta_bytes: kinds.SizeColumn
    delta_ratio: kinds.RatioColumn
    status: kinds.WordColumn


class DiffPoints(Columns, kw_only=True):
    """Measured models and servers: one row per metric and batch size, or per metric and load of a server.

    Attributes:
        batch: Batch size; absent if only servers were measured.
        concurrency: Limit of requests at the same time; absent without servers.
        offered_per_s: Requests sent per second; null if they are sent as fast as possible.
        base_value: ns, or a rate; the mean if a load was measured repeatedly.
        new_value: ns, or a rate, likewise.
    """

    name: kinds.WordColumn
    batch: kinds.IdentifierColumn | None = None
    scenario: kinds.WordColumn | None = None
    concurrency: kinds.CountColumn | None = None
    offered_per_s: kinds.CountColumn | None = None
    figure: kinds.WordColumn
    base_value: kinds.CountColumn
    new_value: kinds.CountColumn
    delta_ratio: kinds.RatioColumn
    significant: kinds.FlagColumn


class DiffNote(msgspec.Struct):
    """A difference between the runs that is not a change of the program, or a reason to doubt the answer.

    Attributes:
        base: Value of the base run, where the note compares values.
        new: Value of the new run, where the note compares values.
        ratio: The common change of all rows of the device (`drift`) or of the host (`pace`).
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

    Attributes:
        causes: Rows that explain a significant change of the step, at most three, the largest first.
        explained_ratio: Share of the step's change that the rows explain; null if the step did not change.
        not_explained_ns: Part of the step's change that no row explains.
        detectable_ratio: The smallest change of a typical row that can be distinguished from noise.
        phase: Compared phase of a server's steps; null for other runs.
        phases: All phases of a server's steps; null for other runs.
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
    causes: list[DiffCause]
    memory: Table[DiffSizes] | None = None
    evaluation: Table[DiffPoints] | None = None
    phase: kinds.Word | None = None
    phases: Table[DiffPhases] | None = None
