"""Fixtures of `assistant`; the package of the protocol is an extra."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp")
sys.path.insert(0, str(Path(__file__).parent))

from assistant import assistant

__all__ = ["assistant"]
