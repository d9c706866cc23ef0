"""Fixtures of `teams`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))
sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
sys.path.insert(0, str(Path(__file__).parent))

from sites import make_site
from teams import quick_hashes, team

__all__ = ["make_site", "quick_hashes", "team"]
