"""Rules: detectors of causes that slow a run down. Each file of this folder is a rule (docs/findings.md)."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from visualprof.views.measure.findings import Rule


@cache
def all_rules() -> dict[str, Rule]:
    """Return the rules by name, which is the name of the module."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").RULE for name in names}
