"""Properties of a recording that make two recordings comparable or not."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from visualprof.reader.patterns import pattern
from visualprof.reader.trace import Trace
from visualprof.views.measure.columns.intervals import INT64_LIMITS
from visualprof.views.measure.devices.pressure import cpu_pressure
from visualprof.views.measure.launches.launch import launches, operator_times
from visualprof.views.measure.names.tensor_core import can_use_tensor_core, match_names
from visualprof.views.measure.steps.windows import StepWindows

_SHAPE = pattern(r"\[+([\d, ]+)\]")
_TYPE = pattern(r"(?:c10::)?(\w+)")


class Facts(msgspec.Struct):
    """Properties that make two recordings comparable or not; "" and None are unknown.

    Attributes:
        marked: Whether the steps are annotated in the file.
        input: Input shape of the first product.
        precision: Input type of the products, by time.
    """

    framework: str
    version: str
    format: str
    device_type: str
    device: str
    device_work: str
    host: str
    marked: bool
    truncated: bool
    input: str
    precision: str
    cpu_pressure_ratio: float | None
    system_cpu_ratio: float | None


def recording_facts(trace: Trace, windows: StepWindows) -> Facts:
    """Return the properties of a recording and of its compared steps."""
    meta = trace.meta
    devices = list(dict.fromkeys(d.name for d in meta.devices if d.id >= 0 and d.name))
    return Facts(
        framework=meta.framework,
        version=meta.producer,
        format=meta.format,
        device_type=meta.device_type,
        device=", ".join(devices) or meta.device_type,
        device_work=meta.device_work,
        host=meta.host,
        marked=len(trace.steps) > 0,
        truncated=meta.truncated,
        input=_product_input(trace, "input_shapes", _SHAPE, first=True),
        precision=_product_input(trace, "input_types", _TYPE),
        cpu_pressure_ratio=cpu_pressure(trace),
        system_cpu_ratio=meta.system_cpu_ratio if meta.system_cpu_ratio >= 0 else None,
    )


def _product_input(trace: Trace, argument: str, wanted: re.Pattern[str], first: bool = False) -> str:
    """Return the first input of convolutions and matrix products; "" if unknown.

    Args:
        argument: Name of the argument of the operators.
        wanted: Pattern of the text to return.
        first: Use the first product instead of the input with the most time.
    """
    times = operator_times(trace, launches(trace))
    products = np.flatnonzero(match_names(trace, trace.events.name[times.rows], can_use_tensor_core))
    rows = times.rows[products]
    texts = trace.arg(argument, rows, 0).astype(np.int64)
    if not texts.any():
        return ""
    if first:
        began = np.where((texts > 0) & (trace.events.step[rows] >= 0), trace.events.ts[rows], INT64_LIMITS.max)
        text = int(texts[began.argmin()])
    else:
        spent = (times.device_total if times.device_total.any() else times.host_total)[products]
        text = int(np.bincount(texts, spent * (texts > 0)).argmax())
    match = wanted.search(trace.strings[text])
    return match[1].replace(" ", "") if match else ""
