"""Device work of serving steps for the key-value cache and for sampling, and the steady range of steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Ints, Mask, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.serving import ServingStep
from visualprof.views.measure.launches.launch import launches
from visualprof.views.measure.names.tensor_core import match_names

# Writes, moves and copies of the key-value cache; some kernels also compute the rotary embedding before.
CACHE_NAMES = pattern(
    r"and_cache|store_cache|kv_cache_update|set_(?:mla_)?kv_buffer|append_paged|(?:copy|swap)_blocks|"
    r"(?:copy|transfer|move)_(?:all_layer_)?kv|kv_?cache_?(?:copy|transfer|store)|"
    r"transformers/cache_utils\.py\(\d+\): update|applyBiasRopeUpdateKVCache|updateKVBlock"
)
# A server's sampler, its kernels, and operators that choose tokens. Not `_sample` of `generate`, which is the whole
# loop, and not vLLM's `sample_tokens`, which also drafts.
SAMPLING_NAMES = pattern(
    r"(?<![Pp])(?<!wn)Sampl(?:er|ing)|(?<![A-Za-z])(?:sample|sampling|sampler)(?![a-z])|_sampling_|[Gg]umbel|"
    r"aten::(?:argmax|multinomial)$"
)
NOT_SAMPLING_NAMES = pattern(r"generation/utils\.py|utils/data/|grid_sampl|random_sampl|sample_tokens")


def is_cache_work(name: str) -> bool:
    """Return whether something of this name writes or moves keys and values of requests."""
    return bool(CACHE_NAMES.search(name))


def is_sampling_work(name: str) -> bool:
    """Return whether something of this name chooses tokens."""
    return bool(SAMPLING_NAMES.search(name)) and not NOT_SAMPLING_NAMES.search(name)


def device_time(trace: Trace, is_chosen: Mask) -> Ints | None:
    """Return the duration per step (n,) of device work that is chosen, or was launched in a chosen event.

    `None` without such work.

    Args:
        trace: The trace.
        is_chosen: Which events of the trace to use.
    """
    launched, events = launches(trace), trace.events
    is_counted = is_chosen[launched.work] | (nearest_ancestor(events.parent, is_chosen, launched.call) >= 0)
    rows = launched.work[is_counted]
    if not len(rows):
        return None
    rows = rows[events.step[rows] >= 0]
    return np.bincount(events.step[rows], events.dur[rows], len(trace.steps)).astype(np.int64)


def cache_time(trace: Trace) -> Ints | None:
    """Return the device time per step (n,) in ns for the key-value cache; `None` if no name indicates it."""
    return device_time(trace, match_names(trace, trace.events.name, is_cache_work))


def sampling_time(trace: Trace) -> Ints | None:
    """Return the device time per step (n,) in ns for sampling; `None` if no name indicates it."""
    return device_time(trace, match_names(trace, trace.events.name, is_sampling_work))


def steady_range(loads: Sequence[ServingStep], min_share: float) -> tuple[int, int]:
    """Return the first and the last step of the longest range of steps with many requests.

    A decode step has many requests if it has at least `min_share` times the maximum. If no step
    decodes, all steps are considered. Steps of prefill, draft and verification in between belong to
    the range; idle steps end it. If the numbers of requests are unknown, the range contains all
    steps.
    """
    batch = np.array([load.batch or 0 for load in loads])
    phases = [load.phase for load in loads]
    is_considered = np.array([phase in ("decode", "mixed") for phase in phases])
    is_considered = is_considered if is_considered.any() else np.array([phase != "idle" for phase in phases])
    if not (batch[is_considered] > 0).any():
        return 0, len(loads) - 1
    has_many = is_considered & (batch >= min_share * batch[is_considered].max())
    is_end = (is_considered & ~has_many) | np.array([phase == "idle" for phase in phases])
    range_ids = np.cumsum(is_end)
    longest = np.bincount(range_ids[has_many]).argmax()
    members = np.flatnonzero(has_many & (range_ids == longest))
    return int(members[0]), int(members[-1])
