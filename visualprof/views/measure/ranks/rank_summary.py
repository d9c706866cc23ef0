"""Summary of one rank for the views of a run: its steps and collectives.

A summary takes a few kilobytes instead of megabytes of events.
"""

from __future__ import annotations

import msgspec
import numpy as np

from visualprof.errors import BadParameter
from visualprof.messages import msg
from visualprof.reader.trace import Category, Floats, Ints, Mask, Trace, TrackKind
from visualprof.reader.trace.process_group import ProcessGroup, decode_ranks
from visualprof.reader.trace.rank_transfer import RankTransfer
from visualprof.views.measure.columns.groups import group
from visualprof.views.measure.columns.intervals import covered_ns, merge, subtract, union
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.devices.utilization import DeviceSummary, device_summaries
from visualprof.views.measure.launches.device_work import (
    HOST_DEVICE,
    DeviceWork,
    event_devices,
    main_work,
    work_by_device,
)
from visualprof.views.measure.ranks.alignment import TraceClock, trace_clock
from visualprof.views.measure.ranks.collectives import Collectives, collectives
from visualprof.views.measure.ranks.link_use import LinkUse, link_uses
from visualprof.views.measure.ranks.processes import RankLocation, rank_location
from visualprof.views.measure.steps.windows import StepWindows, step_windows

MAX_KERNELS = 12


class RankSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The n steps of one rank of a run.

    Attributes:
        location: The process of the rank.
        clock: Its time base.
        host: Name of the host, "" unknown.
        groups: Process groups that contain the rank.
        steps: (n,) names.
        start: (n,) ns.
        end: (n,) ns.
        device: The main device, `HOST_DEVICE` if nothing runs on a device.
        computation_ns: (n,) computation of the main device.
        communication_ns: (n,) communication of the main device.
        overlap_ns: (n,) time that is in both.
        busy_devices: The d devices that compute or communicate, `HOST_DEVICE` if none does.
        device_times_ns: (d x 3 x n,) computation, communication and overlap of each of these devices.
        loading_ns: (n,) time in which a thread loads data and nothing computes or communicates.
        message_ns: (n,) time in which messages are transferred and nothing computes.
        kernel_blocks: (n,) blocks per multiprocessor, summed over kernels; NaN where they are not
            recorded.
        kernel_names: Names of the k <= 12 kernels with the longest total time.
        kernel_ns: (k x n,) time of each of these kernels in each step.
        devices: The devices of the rank.
        links: Links that carried collectives, as the recording reports them.
        transfers: Transfers from and to the rank, as the recording reports them.
    """

    location: RankLocation
    clock: TraceClock
    host: str
    groups: tuple[ProcessGroup, ...]
    steps: tuple[str, ...]
    start: Ints
    end: Ints
    device: int
    computation_ns: Ints
    communication_ns: Ints
    overlap_ns: Ints
    busy_devices: tuple[int, ...]
    device_times_ns: Ints
    loading_ns: Ints
    message_ns: Ints
    kernel_blocks: Floats
    kernel_names: tuple[str, ...]
    kernel_ns: Ints
    devices: tuple[DeviceSummary, ...]
    links: tuple[LinkUse, ...] = ()
    transfers: tuple[RankTransfer, ...] = ()


class RankSummary(RankSteps, frozen=True, kw_only=True):
    """The steps of one rank and its collectives with m parts.

    Attributes:
        collectives: The collectives.
        part_step: (m,) index of each part's step, -1 for none.
        part_exposed_ns: (m,) time of each part in which the main device does not compute.
    """

    collectives: Collectives
    part_step: Ints
    part_exposed_ns: Ints

    def is_in_step(self, name: str) -> Mask:
        """Return, per part (m,), whether it belongs to the step with a name.

        Raises:
            BadParameter: There is no such step.
        """
        if name not in self.steps:
            raise BadParameter(
                msg("views.there_no_step", f"there is no step {name!r}"),
                msg("views.steps", f"steps: {', '.join(self.steps[:20])}")
                if self.steps
                else msg("views.trace_no_steps", "this trace has no steps"),
            )
        return self.part_step == self.steps.index(name)

    def without_collectives(self) -> RankSteps:
        """Return the steps without the collectives, which take most of the memory."""
        return RankSteps(**{name: getattr(self, name) for name in RankSteps.__struct_fields__})


@cached_on_trace
def rank_summary(trace: Trace) -> RankSummary:
    """Return the summary of a trace. Computation is that of kernels, or of operators if nothing runs on a device."""
    windows, rank_collectives = step_windows(trace), collectives(trace)
    by_device, work = work_by_device(trace), main_work(trace)
    computation, communication, overlap = work.times(windows.start, windows.end)
    busy = merge(*(spans for device in by_device for spans in (device.computing, device.communicating)))
    step_position = np.full(len(trace.steps) + 1, -1)
    step_position[windows.index] = np.arange(len(windows))  # the last entry is for events outside of steps
    part_start, part_end = rank_collectives.part_start, rank_collectives.part_end
    kernel_names, kernel_ns, kernel_blocks = _longest_kernels(trace, step_position, len(windows))
    return RankSummary(
        location=rank_location(trace),
        clock=trace_clock(trace),
        host=trace.meta.host,
        groups=tuple(
            process_group for process_group in trace.meta.groups if trace.meta.rank in decode_ranks(process_group.runs)
        ),
        steps=windows.names,
        start=windows.start,
        end=windows.end,
        computation_ns=computation,
        communication_ns=communication,
        overlap_ns=overlap,
        device=work.device,
        busy_devices=tuple(device.device for device in by_device),
        device_times_ns=np.concatenate([device.times(windows.start, windows.end).ravel() for device in by_device]),
        loading_ns=_loading_ns(trace, windows, busy),
        message_ns=_message_ns(windows, trace, rank_collectives, work),
        kernel_blocks=kernel_blocks,
        kernel_names=kernel_names,
        kernel_ns=kernel_ns,
        devices=tuple(device_summaries(trace, windows)),
        links=tuple(link_uses(trace)),
        transfers=trace.meta.transfers,
        collectives=rank_collectives,
        part_step=step_position[trace.events.step[rank_collectives.part_row]],
        part_exposed_ns=part_end - part_start - covered_ns(work.computing, part_start, part_end),
    )


def _message_ns(windows: StepWindows, trace: Trace, rank_collectives: Collectives, work: DeviceWork) -> Ints:
    """Return the time per step in which messages are transferred and the device does not compute."""
    devices = event_devices(trace)[rank_collectives.part_row]
    selected = (rank_collectives.source >= 0)[rank_collectives.part_call] & rank_collectives.is_transfer
    selected &= (devices == HOST_DEVICE) | (devices == work.device)
    transferring = union(rank_collectives.part_start[selected], rank_collectives.part_end[selected])
    return covered_ns(subtract(transferring, work.computing), windows.start, windows.end)


def _loading_ns(trace: Trace, windows: StepWindows, busy: Ints) -> Ints:
    """Return the time per step in which a thread loads data and the rank is not busy otherwise."""
    events = trace.events
    rows = np.flatnonzero(
        (events.category == Category.DATALOADER) & trace.track_mask(TrackKind.THREAD) & (events.dur > 0)
    )
    spans = subtract(union(events.ts[rows], events.end[rows]), busy)
    return covered_ns(spans, windows.start, windows.end)


def _longest_kernels(trace: Trace, step_position: Ints, step_count: int) -> tuple[tuple[str, ...], Ints, Floats]:
    """Return the names of the longest kernels, their times (kernels x steps), and the blocks of each step."""
    events = trace.events
    is_kernel = trace.track_mask(TrackKind.STREAM) & (events.category == Category.KERNEL) & (events.dur > 0)
    rows = np.flatnonzero(is_kernel & (step_position[events.step] >= 0))
    step, blocks = step_position[events.step[rows]], trace.arg("blocks_per_sm", rows, np.nan).astype(np.float64)
    are_recorded = ~np.isnan(blocks).all()
    step_blocks = (
        np.bincount(step, blocks, step_count).astype(np.float64)[:step_count]
        if are_recorded
        else np.full(step_count, np.nan)
    )
    names = group(events.name[rows])
    name_ids: list[int] = events.name[rows[names.first]].tolist()
    longest = np.argsort(-names.sum(events.dur[rows]), kind="stable")[:MAX_KERNELS]
    longest_list: list[int] = longest.tolist()
    kernel_names = tuple(trace.strings[name_ids[i]] for i in longest_list)
    order = np.full(len(names.first), -1)
    order[longest] = np.arange(len(longest))
    kernel_index = order[names.ids]
    cell, durations = (kernel_index * step_count + step)[kernel_index >= 0], events.dur[rows][kernel_index >= 0]
    total: Ints = np.bincount(cell, durations, len(longest) * step_count).astype(np.int64)
    return kernel_names, total, step_blocks
