"""What of a serving step's device work is for the cache of keys and values and for sampling, and what is steady."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Ints, Mask, Trace
from visualprof.reader.trace.nesting import nearest_ancestor
from visualprof.reader.trace.serving import ServingStep
from visualprof.views.measure.launch import launches
from visualprof.views.measure.tensor_core import match_names

# What writes, moves or copies blocks of it; fused with the rotary embedding in front, where a kernel does both.
CACHE_NAMES = pattern(
    r"and_cache|store_cache|kv_cache_update|set_(?:mla_)?kv_buffer|append_paged|(?:copy|swap)_blocks|"
    r"(?:copy|transfer|move)_(?:all_layer_)?kv|kv_?cache_?(?:copy|transfer|store)|"
    r"transformers/cache_utils\.py\(\d+\): update|applyBiasRopeUpdateKVCache|updateKVBlock"
)
# Of a server's sampler, its kernels, or the operators that choose; not `_sample` of `generate`, which is the whole
# loop, nor vLLM's `sample_tokens`, which drafts, too.
SAMPLING_NAMES = pattern(
    r"(?<![Pp])(?<!wn)Sampl(?:er|ing)|(?<![A-Za-z])(?:sample|sampling|sampler)(?![a-z])|_sampling_|[Gg]umbel|"
    r"aten::(?:argmax|multinomial)$"
)
NOT_SAMPLING_NAMES = pattern(r"generation/utils\.py|utils/data/|grid_sampl|random_sampl|sample_tokens")


def is_cache_work(name: str) -> bool:
    """Does what is called so write or move keys and values of requests?"""
    return bool(CACHE_NAMES.search(name))


def is_sampling_work(name: str) -> bool:
    """Does what is called so choose tokens?"""
    return bool(SAMPLING_NAMES.search(name)) and not NOT_SAMPLING_NAMES.search(name)


def device_time(trace: Trace, chosen: Mask) -> Ints | None:
    """Duration of the device work of each step (n,) that is such, or was launched in such; None where nothing is.

    chosen: of each event.
    """
    joined, events = launches(trace), trace.events
    mine = chosen[joined.work] | (nearest_ancestor(events.parent, chosen, joined.call) >= 0)
    rows = joined.work[mine]
    if not len(rows):
        return None
    rows = rows[events.step[rows] >= 0]
    return np.bincount(events.step[rows], events.dur[rows], len(trace.steps)).astype(np.int64)


def cache_time(trace: Trace) -> Ints | None:
    """Of each step (n,): ns on devices for the cache of keys and values; None where no name tells."""
    return device_time(trace, match_names(trace, trace.events.name, is_cache_work))


def sampling_time(trace: Trace) -> Ints | None:
    """Of each step (n,): ns on devices for the choice of tokens; None where no name tells."""
    return device_time(trace, match_names(trace, trace.events.name, is_sampling_work))


def steady_range(loads: Sequence[ServingStep], min_share: float) -> tuple[int, int]:
    """The first and the last step of the longest stretch with many requests.

    Steps that decode, or all if none does, have many if there are `least` times the most in them; those of prefill,
    draft and verification in between belong to it, idle ones end it. Without numbers of requests it is all steps.
    """
    batch = np.array([load.batch or 0 for load in loads])
    phases = [load.phase for load in loads]
    counts = np.array([phase in ("decode", "mixed") for phase in phases])
    counts = counts if counts.any() else np.array([phase != "idle" for phase in phases])
    if not (batch[counts] > 0).any():
        return 0, len(loads) - 1
    many = counts & (batch >= min_share * batch[counts].max())
    ends = (counts & ~many) | np.array([phase == "idle" for phase in phases])
    stretch = np.cumsum(ends)
    longest = np.bincount(stretch[many]).argmax()
    inside = np.flatnonzero(many & (stretch == longest))
    return int(inside[0]), int(inside[-1])
