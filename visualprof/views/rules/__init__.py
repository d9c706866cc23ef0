"""Rules: detectors of causes that slow a run down. Each file of this folder is a rule (docs/findings.md)."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from msgspec.structs import replace

from visualprof.reader.trace import Trace
from visualprof.views.measure.columns.trace_cache import cached_on_trace
from visualprof.views.measure.findings.detection import Detection, Rule, RuleContext


@cache
def all_rules() -> dict[str, Rule]:
    """Return the rules by name, which is the name of the module."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").RULE for name in names}


@cached_on_trace
def detections(trace: Trace) -> dict[str, Detection]:
    """Return the problems that the rules detect in a recording, by rule.

    For several devices, the result is the most expensive detection, with the number of devices.
    """
    context = RuleContext(trace)
    by_rule = {name: list(rule.detect(context)) for name, rule in all_rules().items() if context.applies(rule)}
    return {name: _worst(signals) for name, signals in by_rule.items() if signals}


def _worst(signals: list[Detection]) -> Detection:
    """Return the most expensive of several detections."""
    worst = max(signals, key=lambda signal: signal.max_gain_ns or 0)
    return replace(worst, evidence={**worst.evidence, "devices": len(signals)}) if len(signals) > 1 else worst
