"""What slows a run down: one rule a file, found by listing this folder. Each is documented in docs/findings.md."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from visualprof.views.measure.findings import Rule


@cache
def all_rules() -> dict[str, Rule]:
    """Every rule by its name, which is that of its file."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").RULE for name in names}
