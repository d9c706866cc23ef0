"""Find where a thread group hands over work to another thread group that is idle."""

from __future__ import annotations

import numpy as np

from visualprof.reader.trace import Ints
from visualprof.views.measure.columns.groups import is_in

MIN_HANDOFF_REST_NS = 20_000  # a longer rest of a thread may end because another thread hands over work


def find_handovers(time: Ints, thread_group: Ints, role: Ints, following: Ints, group_count: int) -> tuple[Ints, Ints]:
    """Return, per endpoint with a predecessor, the endpoint of another group that ended its rest.

    Args:
        time: Times of all endpoints in ns, sorted by thread group.
        thread_group: Numbers of their thread groups.
        role: Their roles; see `build`.
        following: The endpoints with a predecessor in their group.
        group_count: Number of thread groups.

    Returns:
        The endpoints that ended a rest, and the latest endpoint of other groups, each -1 for none.
    """
    rest_ns = time[following] - time[following - 1]
    is_resting = (rest_ns > MIN_HANDOFF_REST_NS) & is_in(role[following - 1], (1, 4)) & is_in(role[following], (0, 3))
    latest_other = np.full(len(following), -1)
    if group_count > 1:
        resting_rows = np.flatnonzero(is_resting)
        latest_other[resting_rows] = latest_of_others(time, thread_group, following[resting_rows], group_count)
    is_handover = (
        (latest_other >= 0)
        & (time[latest_other] > time[following - 1])
        & (time[following] - time[latest_other] < rest_ns / 2)
    )
    return np.where(is_handover, latest_other, -1), latest_other


def latest_of_others(time: Ints, thread_group: Ints, points: Ints, group_count: int) -> Ints:
    """Return the last endpoint of another thread group before each of some endpoints, -1 for none."""
    latest, latest_time = np.full(len(points), -1), np.full(len(points), np.iinfo(np.int64).min)
    for group_number in range(group_count):
        first, last = np.searchsorted(thread_group, (group_number, group_number + 1))
        candidate = first + np.searchsorted(time[first:last], time[points]) - 1
        is_valid = (thread_group[points] != group_number) & (candidate >= first)
        is_valid &= np.where(is_valid, time[np.maximum(candidate, 0)] > latest_time, False)
        latest, latest_time = (
            np.where(is_valid, candidate, latest),
            np.where(is_valid, time[np.maximum(candidate, 0)], latest_time),
        )
    return latest
