"""Arguments of kernels of Ascend NPUs: core, type, and how busy the pipelines of the cores were."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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
_MAX_BLOCKS = 1 << 16
_MIN_AGREEMENT = 0.9  # share of kernels that must give the same clock and number of cores

# Names of all metrics that are read, as in `kernel_details.csv`
METRICS = (
    *CORE_TIMES.values(),
    TOTAL_CYCLES,
    UTILIZATION,
    *(f"{prefix}{pipeline}_ratio" for prefix in ("aic_", "aiv_", "") for pipeline in PIPELINES),
)


class CubeCores(NamedTuple):
    """The cube cores of a device; 0 if unknown.

    Attributes:
        cores: Number of cores.
        mhz: Their clock.
    """

    cores: int = 0
    mhz: int = 0


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
) -> CubeCores:
    """Add core, type, share of cores and pipeline ratios of kernels. Return the cube cores of the device.

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
    mhz = _clock(metric, blocks)
    cube_cores = _count_by_utilization(metric, mhz, dur_ns) or _count_by_blocks(prefix, blocks)
    is_sized = (blocks > 0) & (prefix != "")
    if cube_cores:
        capacity = np.where(prefix == "aiv_", _VECTOR_CORES_PER_CUBE_CORE * cube_cores, cube_cores)
        builder.arg("blocks_per_sm", rows[is_sized], blocks[is_sized] / capacity[is_sized])
    utilization = metric(UTILIZATION)
    if utilization is not None:
        is_cube = (prefix == "aic_") & ~np.isnan(utilization)
        builder.arg("cube_utilization", rows[is_cube], utilization[is_cube] / 100.0)
    return CubeCores(cube_cores, mhz)


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


def _clock(metric: Callable[[str], Floats | None], blocks: Ints) -> int:
    """Return the clock of the cube cores in MHz, derived from cycles = time x clock x blocks; 0 if unknown."""
    time, cycles = metric(CORE_TIMES["aic_"]), metric(TOTAL_CYCLES)
    if time is None or cycles is None:
        return 0
    rows = np.flatnonzero((np.nan_to_num(cycles) > 0) & (np.nan_to_num(time) > 1) & (blocks > 0))
    return _typical_number(cycles[rows] / (time[rows] * blocks[rows]))


def _count_by_utilization(metric: Callable[[str], Floats | None], mhz: int, dur_ns: Ints) -> int:
    """Return the number of cube cores, derived from utilization = cycles / (clock x cores x duration); 0 if unknown."""
    cycles, utilization = metric(TOTAL_CYCLES), metric(UTILIZATION)
    if cycles is None or utilization is None or not mhz:
        return 0
    rows = np.flatnonzero((np.nan_to_num(cycles) > 0) & (np.nan_to_num(utilization) > 1) & (dur_ns > 0))
    return _typical_number(cycles[rows] / (mhz * (dur_ns[rows] / 1000) * (utilization[rows] / 100)))


def _count_by_blocks(prefix: Rows, blocks: Ints) -> int:
    """Return the most blocks of a kernel on cube cores if most kernels on vector cores have twice as many, 0 otherwise.

    A kernel that fills the device has a block per core, and a cube core has two vector cores.
    """
    cube = int(blocks[prefix == "aic_"].max(initial=0))
    vector = np.clip(blocks[prefix == "aiv_"], 0, _MAX_BLOCKS)
    if cube <= 0 or not len(vector):
        return 0
    return cube if int(np.bincount(vector).argmax()) == _VECTOR_CORES_PER_CUBE_CORE * cube else 0


def _typical_number(values: Floats) -> int:
    """Return the integer that most values round to, 0 if they disagree. The text form rounds, so a few may differ."""
    if not len(values):
        return 0
    rounded = np.rint(np.clip(values, 0, 2**15)).astype(np.int64)
    typical = int(np.bincount(rounded).argmax())
    return typical if (rounded == typical).mean() >= _MIN_AGREEMENT else 0
