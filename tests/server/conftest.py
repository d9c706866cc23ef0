"""Fixtures of `sites`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sites import make_site, site

__all__ = ["make_site", "site"]
