"""Fixtures for tests of clusters."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def require(engine: str) -> None:
    """Skips where a package is missing, without its import, which comes before its settings."""
    if not find_spec({"dask": "distributed"}.get(engine, engine)):
        pytest.skip(f"{engine} is not installed")
