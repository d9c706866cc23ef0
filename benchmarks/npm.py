"""Runs npm for the page: `python -m benchmarks.npm test`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from setup import FRONTEND, npm

if __name__ == "__main__":
    if not (FRONTEND / "node_modules").exists() and npm("ci", "--no-audit", "--no-fund"):
        sys.exit("npm ci failed")
    sys.exit(npm(*sys.argv[1:]))
