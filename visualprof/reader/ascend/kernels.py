"""Arguments of kernels of Ascend NPUs: core, type, and how busy the pipelines of the cores were."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from visualprof.reader.ascend.names import core_prefix
from visualprof.reader.trace import Floats, Ids, Ints, Rows
from visualprof.reader.trace.builder import TraceBuilder
from visualprof.reader.trace.types import Mask

PIPELINES = ("mac", "vec", "scalar", "mte1", "mte2", "mte3", "fixpipe")
CORE_TIMES = {"aic_": "aicore_time(us)", "aiv_": "aiv_time(us)"}
TOTAL_CYCLES = "aic_total_cycles"
UTILIZATION = "cube_utilization(%)"
_VECTOR_CORES_PER_CUBE_CORE = 2
_MIN_AGREEMENT = 0.9  # share of kernels that must give the same clock and number of cores

# Names of all metrics that are read, as in `kernel_details.csv`
METRICS = (
    *CORE_TIMES.values(),
    TOTAL_CYCLES,
    UTILIZATION,
    *(f"{prefix}{pipeline}_ratio" for prefix in ("aic_", "aiv_", "") for pipeline in PIPELINES),
)


def add_kernel_arguments(
    builder: TraceBuilder,
    rows: Rows,
    *,
    cores: list[str],
    core: Ids,
    types: Rows,
    blocks: Ints,
    dur_ns: Ints,
    metric: Callable[[str], Floats | None],
) -> int:
    """Add core, type, share of cores and pipeline ratios of kernels. Return the number of cube cores, 0 if unknown.

    Args:
        builder: Gets the arguments.
        rows: (n,) rows of the kernels.
        cores: Distinct names of cores.
        core: (n,) index in `cores`.
        types: (n,) string ids of the types of operators, 0 unknown.
        blocks: (n,) number of blocks, 0 or less if unknown.
        dur_ns: (n,) duration.
        metric: Returns the values (n,) of a metric, NaN if unknown; `None` if the file has no such metric.
    """
    core_ids = builder.strings(cores)[core]
    has_value = core_ids > 0
    builder.arg("core", rows[has_value], core_ids[has_value], text=True)
    builder.arg("type", rows[types > 0], types[types > 0], text=True)
    prefix = np.array([core_prefix(name) for name in cores] or [""])[core]
    _add_ratios(builder, rows, prefix, metric)
    cube_cores = _cube_cores(metric, dur_ns, blocks)
    is_sized = (blocks > 0) & (prefix != "")
    if cube_cores:
        capacity = np.where(prefix == "aiv_", _VECTOR_CORES_PER_CUBE_CORE * cube_cores, cube_cores)
        builder.arg("blocks_per_sm", rows[is_sized], blocks[is_sized] / capacity[is_sized])
    utilization = metric(UTILIZATION)
    if utilization is not None:
        is_cube = (prefix == "aic_") & ~np.isnan(utilization)
        builder.arg("cube_utilization", rows[is_cube], utilization[is_cube] / 100.0)
    return cube_cores


def _add_ratios(builder: TraceBuilder, rows: Rows, prefix: Rows, metric: Callable[[str], Floats | None]) -> None:
    """Add per pipeline the share of time in which it was busy, on the type of core that ran the kernel."""
    measured = _measured(prefix, metric)
    for pipeline in PIPELINES:
        values = np.full(len(rows), np.nan)
        for start in ("aic_", "aiv_"):
            column = metric(f"{start}{pipeline}_ratio")
            if column is None:
                column = metric(f"{pipeline}_ratio")
            if column is not None:
                values = np.where((prefix == start) & measured, column, values)
        has_value = ~np.isnan(values)
        builder.arg(f"{pipeline}_ratio", rows[has_value], values[has_value])


def _measured(prefix: Rows, metric: Callable[[str], Floats | None]) -> Mask:
    """Return (n,) whether the core of the kernel was measured: its execution time is known and not 0."""
    measured = np.zeros(len(prefix), bool)
    for start, name in CORE_TIMES.items():
        time = metric(name)
        measured |= (prefix == start) & (True if time is None else np.nan_to_num(time) > 0)
    return measured


def _cube_cores(metric: Callable[[str], Floats | None], dur_ns: Ints, blocks: Ints) -> int:
    """Return the number of cube cores, derived from cycles, clock and utilization; 0 if unknown.

    cycles = time x clock x blocks, and utilization = cycles / (clock x cores x duration). The text form rounds
    utilization and times, so most kernels must give the same number.
    """
    time, cycles, utilization = (metric(name) for name in (CORE_TIMES["aic_"], TOTAL_CYCLES, UTILIZATION))
    if time is None or cycles is None or utilization is None:
        return 0
    rows = np.flatnonzero((np.nan_to_num(cycles) > 0) & (np.nan_to_num(utilization) > 1) & (time > 1) & (blocks > 0))
    if not len(rows):
        return 0
    megahertz = cycles[rows] / (time[rows] * blocks[rows])
    cores = cycles[rows] / (megahertz * (dur_ns[rows] / 1000) * (utilization[rows] / 100))
    rounded = np.rint(cores).astype(np.int64)
    typical = int(np.bincount(np.clip(rounded, 0, 4096)).argmax())
    return typical if (rounded == typical).mean() >= _MIN_AGREEMENT else 0
