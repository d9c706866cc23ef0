"""Settings of a server by the names of the single settings."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from visualprof.server.settings import GROUPS, Settings


def server_settings(**values: Any) -> Settings:
    """Return the settings in their groups.

    Raises:
        TypeError: There is no such setting.
    """
    groups = {
        name: kind(**{field.name: values.pop(field.name) for field in fields(kind) if field.name in values})
        for name, kind in GROUPS.items()
    }
    return Settings(**groups, **values)
